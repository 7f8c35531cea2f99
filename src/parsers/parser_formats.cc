#include "parsers/parser_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr ReasoningFormat kReasoningFormats[] = {ReasoningFormat::kNone, ReasoningFormat::kQwen3};
constexpr ToolFormat kToolFormats[] = {ToolFormat::kNone, ToolFormat::kHermes,
                                       ToolFormat::kLlama3Json};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

ToolFormat detect_tools(std::string_view source) {
  if (has(source, "<tool_call>") && has(source, "</tool_call>")) {
    // Other models write XML between the same tags: Qwen3-Coder, GLM-4.5.
    const bool xml = has(source, "<function=") || has(source, "<arg_key>");
    return !xml && has(source, "arguments") ? ToolFormat::kHermes : ToolFormat::kNone;
  }
  const bool llama3 = has(source, "<|start_header_id|>") && has(source, "\"parameters\"");
  return llama3 ? ToolFormat::kLlama3Json : ToolFormat::kNone;
}

template <typename Format>
std::vector<std::string_view> names_with_auto(const Format& formats) {
  std::vector<std::string_view> names = {kAuto};
  for (const auto format : formats) names.push_back(name_of(format));
  return names;
}

template <typename Formats, typename Format>
Format format_named(std::string_view option, std::string_view name, const Formats& formats,
                    Format detected) {
  if (name == kAuto) return detected;
  for (const Format format : formats) {
    if (name == name_of(format)) return format;
  }
  throw Error(fmt::format("{} '{}' is not known: expected one of {}.", option, name,
                          fmt::join(names_with_auto(formats), ", ")));
}

}  // namespace

OutputFormats detect_formats(std::string_view template_source) {
  const bool thinks = has(template_source, "<think>") && has(template_source, "</think>");
  return {thinks ? ReasoningFormat::kQwen3 : ReasoningFormat::kNone, detect_tools(template_source)};
}

std::string_view name_of(ReasoningFormat format) {
  return format == ReasoningFormat::kQwen3 ? "qwen3" : "none";
}

std::string_view name_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return "hermes";
    case ToolFormat::kLlama3Json:
      return "llama3_json";
    case ToolFormat::kNone:
      break;
  }
  return "none";
}

ReasoningFormat reasoning_format_of(std::string_view name, const OutputFormats& detected) {
  return format_named("--reasoning-parser", name, kReasoningFormats, detected.reasoning);
}

ToolFormat tool_format_of(std::string_view name, const OutputFormats& detected) {
  return format_named("--tool-call-parser", name, kToolFormats, detected.tools);
}

std::vector<std::string_view> reasoning_format_names() {
  return names_with_auto(kReasoningFormats);
}

std::vector<std::string_view> tool_format_names() {
  return names_with_auto(kToolFormats);
}

}  // namespace quire
