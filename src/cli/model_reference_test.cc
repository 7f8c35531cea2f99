#include "cli/model_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_text.h"
#include "cli/json_lines.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ModelReference small_reference() {
  ModelReference reference;
  reference.tolerance = 0.02;
  reference.answer = {.prompt = "define \"ä\"\n",
                      .prompt_token_ids = {1, 2, 3},
                      .output_token_ids = {4, 5},
                      .logprobs = {-0.25, -1.5},
                      .runner_up_logprobs = {-2, -1.75}};
  return reference;
}

TEST(ModelReferenceFile, ReadsWhatItWrites) {
  const ModelReference read = parse_reference(to_reference_text(small_reference()), "r.json");
  const ModelReference written = small_reference();
  EXPECT_EQ(read.tolerance, written.tolerance);
  EXPECT_EQ(read.answer.prompt, written.answer.prompt);
  EXPECT_EQ(read.answer.prompt_token_ids, written.answer.prompt_token_ids);
  EXPECT_EQ(read.answer.output_token_ids, written.answer.output_token_ids);
  EXPECT_EQ(read.answer.logprobs, written.answer.logprobs);
  EXPECT_EQ(read.answer.runner_up_logprobs, written.answer.runner_up_logprobs);
}

TEST(ModelReferenceFile, RefusesWhatIsNone) {
  const auto expect_refused = [](const char* name, const Json& value, const char* message) {
    Json json = parse_json_object(to_reference_text(small_reference()), "test");
    if (value.is_discarded()) {
      json.erase(name);
    } else {
      json[name] = value;
    }
    EXPECT_THAT([&] { parse_reference(json.dump(), "r.json"); },
                ThrowsMessage<Error>(HasSubstr(message)));
  };
  const Json missing(Json::value_t::discarded);
  for (const char* name : {"quire_reference", "tolerance", "prompt", "prompt_token_ids",
                           "output_token_ids", "logprobs", "runner_up_logprobs"}) {
    expect_refused(name, missing, "r.json: there is no ");
  }
  expect_refused("quire_reference", 2, "quire_reference is 2; expected 1");
  expect_refused("tolerance", 0, "tolerance is 0; expected more than 0");
  expect_refused("tolerance", "x", "tolerance: expected a number, got a string");
  expect_refused("prompt", 5, "prompt: expected a string, got 5");
  expect_refused("prompt_token_ids", Json::array(), "expected 1 to 4096 token ids, got 0");
  expect_refused("output_token_ids", Json::array({-1}), "output_token_ids[0]: expected a token id");
  expect_refused("logprobs", Json::array({-1}), "expected 2 numbers, one for each output token");
  expect_refused("logprobs", Json::array({-1, nullptr}),
                 "logprobs[1]: expected a number, got null");
  EXPECT_THROW(parse_reference("[]", "r.json"), Error);
  EXPECT_THROW(parse_reference("", "r.json"), Error);
  EXPECT_THROW(read_reference("/nowhere/at/all.json"), Error);
}

}  // namespace
}  // namespace quire::cli
