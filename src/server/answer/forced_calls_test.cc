#include "server/answer/forced_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace quire::server {
namespace {

ToolCallDelta call(int index, std::string id, std::string arguments) {
  return {.index = index, .id = std::move(id), .name = "f", .arguments = std::move(arguments)};
}

ParsedDelta calls(std::vector<ToolCallDelta> list, std::string content = "") {
  return {.content = std::move(content), .reasoning = {}, .tool_calls = std::move(list)};
}

CompletionOutput ended(FinishReason reason, std::string stop_reason = "") {
  CompletionOutput output;
  output.finish_reason = reason;
  output.stop_reason = std::move(stop_reason);
  return output;
}

// The arguments cut at each byte: whole only with the last.
TEST(ForcedCalls, AreWholeWithTheirLastBracket) {
  const std::string arguments = R"({"a": "}\"]\\", "b": [{}, [1]], "c": {"d": {}}})";
  for (size_t cut = 0; cut <= arguments.size(); ++cut) {
    for (size_t piece = 1; piece <= 3; ++piece) {
      ForcedCalls forced;
      forced.add(calls({call(0, "call_1", "")}));
      for (size_t at = 0; at < cut; at += piece) {
        forced.add(calls({call(0, "", arguments.substr(at, std::min(piece, cut - at)))}));
      }
      EXPECT_EQ(forced.whole(), cut == arguments.size()) << cut;
    }
  }
}

TEST(ForcedCalls, AreNotWholeWithoutACallOrWithText) {
  ForcedCalls none;
  EXPECT_FALSE(none.whole());
  none.add(calls({}, "<tool_call>"));
  none.add(calls({call(0, "call_1", "{}")}));
  EXPECT_FALSE(none.whole());

  ForcedCalls two;
  two.add(calls({call(0, "call_1", "{}")}, "\n"));
  EXPECT_TRUE(two.whole());
  two.add(calls({call(1, "call_2", R"({"a": 1)")}));
  EXPECT_FALSE(two.whole());
  two.add(calls({call(1, "", "}")}));
  EXPECT_TRUE(two.whole());
}

TEST(ForcedCalls, EndThatCutsOneIsAnErrorThatSaysWhy) {
  ForcedCalls half;
  half.add(calls({call(0, "call_1", R"({"a")")}));
  EXPECT_EQ(cut_call_error(half, ended(FinishReason::kStop, "a\""))->status, 400);
  EXPECT_NE(std::string(cut_call_error(half, ended(FinishReason::kStop, "a\""))->what())
                .find(R"("a\"" cut the call)"),
            std::string::npos);
  EXPECT_EQ(cut_call_error(half, ended(FinishReason::kLength, "timeout"))->status, 408);
  EXPECT_EQ(cut_call_error(half, ended(FinishReason::kAbort))->status, 503);
  // Its grammar has let it end there.
  EXPECT_FALSE(cut_call_error(half, ended(FinishReason::kStop)));
  EXPECT_FALSE(cut_call_error(half, ended(FinishReason::kLength)));

  ForcedCalls whole;
  whole.add(calls({call(0, "call_1", "{}")}));
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort}) {
    EXPECT_FALSE(cut_call_error(whole, ended(reason, "</tool_call>")));
  }
}

}  // namespace
}  // namespace quire::server
