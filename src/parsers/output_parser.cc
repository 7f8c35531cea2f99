#include "parsers/output_parser.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "parsers/reasoning_parser.h"
#include "parsers/tool_call_parser.h"

namespace quire {
namespace {

using parsers_internal::ReasoningParser;
using parsers_internal::ToolCallParser;

// Reasoning comes off first; calls are looked for in what it leaves.
class Parser : public OutputParser {
 public:
  explicit Parser(OutputParserConfig config) {
    if (config.reasoning == ReasoningFormat::kQwen3) reasoning_.emplace(config.thinking);
    if (config.tools == ToolFormat::kNone) return;
    calls_.emplace(config.tools, config.parallel_tool_calls, std::move(config.next_tool_call_id));
  }

  ParsedDelta push(std::string_view text) override {
    if (!reasoning_) return parse_content(text);
    std::string reasoning;
    std::string content;
    reasoning_->push(text, reasoning, content);
    return join(std::move(reasoning), parse_content(content));
  }

  ParsedDelta finish() override {
    std::string reasoning;
    std::string content;
    if (reasoning_) reasoning_->finish(reasoning, content);
    if (!calls_) return join(std::move(reasoning), parse_content(content));
    calls_->push(content);
    calls_->finish();
    return join(std::move(reasoning), calls_->take());
  }

  bool has_tool_calls() const override { return calls_ && calls_->has_tool_calls(); }
  bool done() const override { return calls_ && calls_->done(); }

 private:
  ParsedDelta parse_content(std::string_view text) {
    if (calls_) {
      calls_->push(text);
      return calls_->take();
    }
    ParsedDelta delta;
    delta.content = text;
    return delta;
  }

  static ParsedDelta join(std::string reasoning, ParsedDelta delta) {
    delta.reasoning = std::move(reasoning);
    return delta;
  }

  std::optional<ReasoningParser> reasoning_;
  std::optional<ToolCallParser> calls_;
};

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

ToolCallIds tool_call_ids(std::uint64_t seed) {
  return [random = SplitMix64(seed)]() mutable {
    const std::uint64_t first = random();
    const std::uint64_t second = random();
    return fmt::format("call_{:016x}{:08x}", first, second >> 32);
  };
}

std::unique_ptr<OutputParser> make_output_parser(OutputParserConfig config) {
  return std::make_unique<Parser>(std::move(config));
}

}  // namespace quire
