#pragma once
// Shared by the tests of the output parser: a whole answer parsed, in pieces or at once.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/output_parser.h"

namespace quire::parser_test {

struct Call {
  std::string name;
  std::string arguments;
  std::string id = {};

  bool operator==(const Call& other) const {
    return name == other.name && arguments == other.arguments &&
           (id.empty() || other.id.empty() || id == other.id);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Call& call) {
  return out << call.name << '(' << call.arguments << ')';
}

// All deltas of an answer added up, as a client adds them.
struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;

  bool operator==(const Parsed& other) const {
    return content == other.content && reasoning == other.reasoning && calls == other.calls;
  }

  void add(const ParsedDelta& delta) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      const std::size_t index = static_cast<std::size_t>(call.index);
      const bool first = index == calls.size();
      ASSERT_TRUE(first || index + 1 == calls.size()) << "calls come one after the other";
      EXPECT_EQ(first, !call.id.empty());
      EXPECT_EQ(first, !call.name.empty());
      if (first) calls.push_back({call.name, "", call.id});
      calls.back().arguments += call.arguments;
    }
  }
};

inline std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "content \"" << parsed.content << "\", reasoning \"" << parsed.reasoning << "\", calls";
  for (const Call& call : parsed.calls) out << ' ' << call;
  return out;
}

inline OutputParserConfig config_for(ReasoningFormat reasoning, ToolFormat tools) {
  OutputParserConfig config;
  config.reasoning = reasoning;
  config.tools = tools;
  config.next_tool_call_id = tool_call_ids(7);
  return config;
}

inline OutputParserConfig hermes() {
  return config_for(ReasoningFormat::kNone, ToolFormat::kHermes);
}
inline OutputParserConfig llama3() {
  return config_for(ReasoningFormat::kNone, ToolFormat::kLlama3Json);
}
inline OutputParserConfig qwen3() {
  return config_for(ReasoningFormat::kQwen3, ToolFormat::kHermes);
}

// The answer in pieces of `piece` bytes; 0: at once.
inline Parsed parse(const OutputParserConfig& config, std::string_view text,
                    std::size_t piece = 0) {
  const auto parser = make_output_parser(config);
  Parsed parsed;
  if (piece == 0) piece = text.size() + 1;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    parsed.add(parser->push(text.substr(at, piece)));
  }
  parsed.add(parser->finish());
  EXPECT_EQ(parser->has_tool_calls(), !parsed.calls.empty());
  return parsed;
}

// The chat template kept under that name.
inline std::string template_source(const std::string& name) {
  const std::string path = QUIRE_SOURCE_DIR "/tests/golden/chat/templates/" + name + ".jinja";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace quire::parser_test
