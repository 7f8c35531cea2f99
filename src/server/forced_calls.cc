#include "server/forced_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/api/checkable_schema.h"

namespace quire::server {
namespace {

// A model's own text as a part of a message.
std::string quoted(const std::string& text) {
  constexpr size_t kMaxShown = 100;
  return Json(text.substr(0, kMaxShown)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

class ForcedCalls::Watcher : public OutputParser {
 public:
  Watcher(std::unique_ptr<OutputParser> parser, std::shared_ptr<Answer> answer)
      : parser_(std::move(parser)), answer_(std::move(answer)) {}

  ParsedDelta push(std::string_view text) override { return keep(parser_->push(text)); }
  ParsedDelta finish() override {
    answer_->ended = true;
    return keep(parser_->finish());
  }
  bool has_tool_calls() const override { return parser_->has_tool_calls(); }
  bool done() const override { return parser_->done(); }

 private:
  ParsedDelta keep(ParsedDelta delta) {
    for (const ToolCallDelta& call : delta.tool_calls) {
      const auto index = static_cast<size_t>(call.index);
      if (index >= answer_->calls.size()) answer_->calls.resize(index + 1);
      answer_->calls[index].name += call.name;
      answer_->calls[index].arguments += call.arguments;
    }
    answer_->done = parser_->done();
    return delta;
  }

  std::unique_ptr<OutputParser> parser_;
  std::shared_ptr<Answer> answer_;
};

ForcedCalls::ForcedCalls(const GenerationRequest& request) : ForcedCalls() {
  copy_json(request.chat.tools, tools_);
  name_ = request.tool_name;
}

ForcedCalls::~ForcedCalls() {
  clear_json(tools_);
}

std::unique_ptr<OutputParser> ForcedCalls::watch(std::unique_ptr<OutputParser> parser) {
  answers_.push_back(std::make_shared<Answer>());
  return std::make_unique<Watcher>(std::move(parser), answers_.back());
}

std::optional<ApiError> ForcedCalls::error() {
  for (const auto& answer : answers_) {
    if (!answer->ended || answer->is_valid || (answer->cut && !answer->done)) continue;
    std::string wrong = answer->calls.empty() ? "There is none." : "";
    for (const ToolCallDelta& call : answer->calls) {
      if (wrong.empty()) wrong = wrong_with(call);
    }
    answer->is_valid = wrong.empty();
    if (answer->is_valid) continue;
    return ApiError(
        422, "model_error",
        "tool_choice forces a call of a tool, and the model wrote none that is valid. " + wrong,
        "tool_choice", "invalid_tool_call");
  }
  return std::nullopt;
}

std::string ForcedCalls::wrong_with(const ToolCallDelta& call) const {
  const auto tool = std::ranges::find_if(
      tools_, [&](const Json& each) { return each.at("function").at("name") == call.name; });
  if (tool == tools_.end() || (!name_.empty() && call.name != name_)) {
    return fmt::format("It calls {}, but must call {}.", quoted(call.name),
                       name_.empty() ? "one of tools" : quoted(name_));
  }
  const Json arguments = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  if (!arguments.is_object()) {
    return fmt::format("The arguments of {} are {}, but must be a JSON object.", quoted(call.name),
                       quoted(call.arguments));
  }
  const Json& function = tool->at("function");
  if (!function.contains("parameters")) return "";
  const auto violation = check_against(function.at("parameters"), arguments, "arguments");
  return violation ? fmt::format("In the call of {}, {}", quoted(call.name), violation->message)
                   : "";
}

}  // namespace quire::server
