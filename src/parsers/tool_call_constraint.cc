#include "parsers/tool_call_constraint.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr const char* kHermesTrigger = "<tool_call>";
// What a call begins with in Llama's format. With a function's name, too, other objects stay free;
// but not where that would be so many bytes of triggers.
constexpr const char* kLlamaTrigger = "{\"name\": \"";
constexpr size_t kMostTriggerBytes = 2048;

// With the name's closing quote, so that none begins another.
std::string llama_begin(const CallableFunction& function) {
  return "{\"name\": " + nlohmann::json(function.name).dump();
}

// Calls as the models' templates write them, so that a model meets the form that it has learnt.
StructuralTag tag_of(ToolFormat format, const CallableFunction& function) {
  if (format == ToolFormat::kHermes) {
    const std::string name = nlohmann::json(function.name).dump();
    return {.begin = std::string(kHermesTrigger) + "\n{\"name\": " + name + ", \"arguments\": ",
            .json_schema = function.arguments_schema,
            .end = "}\n</tool_call>"};
  }
  return {.begin = llama_begin(function) + ", \"parameters\": ",
          .json_schema = function.arguments_schema,
          .end = "}"};
}

StructuredOutput calls(ToolFormat format, std::span<const CallableFunction> functions,
                       bool parallel) {
  check(format != ToolFormat::kNone, "calls are constrained in a format");
  StructuredOutput output{.kind = StructuredOutput::Kind::kTags};
  for (const CallableFunction& function : functions) {
    output.tags.push_back(tag_of(format, function));
  }
  output.separator = format == ToolFormat::kHermes ? "\n" : "; ";
  if (!parallel) output.max_tags = 1;
  return output;
}

}  // namespace

StructuredOutput forced_calls(ToolFormat format, std::span<const CallableFunction> functions,
                              bool parallel) {
  StructuredOutput output = calls(format, functions, parallel);
  output.min_tags = 1;
  return output;
}

StructuredOutput optional_calls(ToolFormat format, std::span<const CallableFunction> functions,
                                bool parallel) {
  StructuredOutput output = calls(format, functions, parallel);
  if (format == ToolFormat::kHermes) {
    output.triggers = {kHermesTrigger};
    return output;
  }
  for (const CallableFunction& function : functions) {
    std::string trigger = llama_begin(function);
    const bool is_new = std::ranges::find(output.triggers, trigger) == output.triggers.end();
    if (is_new) output.triggers.push_back(std::move(trigger));
  }
  const size_t bytes =
      std::accumulate(output.triggers.begin(), output.triggers.end(), size_t{0},
                      [](size_t sum, const std::string& trigger) { return sum + trigger.size(); });
  if (bytes > kMostTriggerBytes) output.triggers = {kLlamaTrigger};
  // The text of an answer may quote a call, and goes on behind it.
  output.max_tags = UINT32_MAX;
  return output;
}

StructuredOutput call_or_json(ToolFormat format, std::span<const CallableFunction> functions,
                              const std::string& answer_schema) {
  StructuredOutput output = forced_calls(format, functions, /*parallel=*/false);
  output.tags.push_back({.begin = "", .json_schema = answer_schema, .end = ""});
  return output;
}

}  // namespace quire
