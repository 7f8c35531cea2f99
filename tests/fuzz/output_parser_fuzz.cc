// An answer of any bytes, parsed for reasoning and tool calls: at once, byte by byte and in pieces
// of its own choosing, which must all give the same; and nothing may come out that was not written.
//
// Input: a byte that chooses the formats, one for tool_choice and thinking, one for the pieces'
// length, and the answer.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/output_parser.h"

namespace {

struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<std::string> calls;

  bool operator==(const Parsed& other) const {
    return content == other.content && reasoning == other.reasoning && calls == other.calls;
  }
};

void require(bool holds) {
  if (!holds) std::abort();
}

void add(Parsed& parsed, const quire::ParsedDelta& delta) {
  parsed.content += delta.content;
  parsed.reasoning += delta.reasoning;
  for (const quire::ToolCallDelta& call : delta.tool_calls) {
    const auto index = static_cast<std::size_t>(call.index);
    const bool first = index == parsed.calls.size();
    require(first || index + 1 == parsed.calls.size());
    require(first == !call.name.empty() && first == !call.id.empty());
    if (first) parsed.calls.push_back(call.id + ' ' + call.name + ' ');
    parsed.calls.back() += call.arguments;
  }
}

Parsed parse(const quire::OutputParserConfig& config, std::string_view text, std::size_t piece) {
  const auto parser = quire::make_output_parser(config);
  Parsed parsed;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    add(parsed, parser->push(text.substr(at, piece)));
  }
  add(parsed, parser->finish());
  require(parser->has_tool_calls() == !parsed.calls.empty());
  return parsed;
}

quire::OutputParserConfig choose_config(std::uint8_t formats, std::uint8_t choices) {
  quire::OutputParserConfig config;
  config.reasoning = static_cast<quire::ReasoningFormat>(formats % 2);
  config.tools = static_cast<quire::ToolFormat>(formats / 2 % 3);
  config.parallel_tool_calls = formats / 6 % 2 == 0;
  config.thinking = static_cast<quire::PromptThinking>(choices % 3);
  config.next_tool_call_id = quire::tool_call_ids(1);
  return config;
}

bool is_subsequence(std::string_view part, std::string_view whole) {
  for (const char c : part) {
    const std::size_t at = whole.find(c);
    if (at == std::string_view::npos) return false;
    whole.remove_prefix(at + 1);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const quire::OutputParserConfig config = choose_config(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Parsed whole = parse(config, text, size);
  require(parse(config, text, 1) == whole);
  require(parse(config, text, std::size_t{data[2]} + 1) == whole);
  require(is_subsequence(whole.content, text) && is_subsequence(whole.reasoning, text));
  return 0;
}
