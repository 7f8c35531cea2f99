#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/api/generation_request.h"
#include "server/api/openapi.h"
#include "server/api/request_fields.h"

namespace quire::server {
namespace {

constexpr const char* kChatSchemaName = "ChatCompletionRequest";

void take_chat_logprobs(const Json& body, GenerationRequest& request) {
  take_field(body, "logprobs", request.logprobs);
  if (!request.logprobs) return;
  int alternatives = 0;
  take_field(body, "top_logprobs", alternatives);
  request.sampling.logprobs = alternatives;
}

// As the client wrote them. Nulls are schemas that were not given.
std::vector<std::string> tool_parameters(const RawJson& body) {
  std::vector<std::string> schemas;
  for (const RawJson& tool : body.find("tools").items()) {
    const std::string_view schema = tool.find("function").find("parameters").text();
    schemas.emplace_back(schema == "null" ? "" : schema);
  }
  return schemas;
}

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool.at("function").at("name") == name; });
}

void take_tool_choice(const Json& body, GenerationRequest& request) {
  const Json* choice = given(body, "tool_choice");
  const bool has_tools = !request.chat.tools.is_null();
  if (choice == nullptr || is_string(*choice, "auto")) {
    request.tool_choice = has_tools ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (is_string(*choice, "none")) {
    // A call would come out as text: the model is not told of the tools.
    clear_json(request.chat.tools);
  } else if (is_string(*choice, "required")) {
    request.tool_choice = ToolChoice::kRequired;
  } else {
    request.tool_choice = ToolChoice::kNamed;
    request.tool_name = choice->at("function").at("name").get<std::string>();
    if (!has_tool(request.chat.tools, request.tool_name)) {
      throw invalid_request(
          fmt::format("tool_choice names the function {}, which is not among tools.",
                      Json(request.tool_name).dump()),
          "tool_choice", "invalid_value");
    }
  }
  take_field(body, "parallel_tool_calls", request.parallel_tool_calls);
}

// Templates know the effort by its name; Qwen3's know only whether to think at all. Arguments that
// the client gives to the template itself win.
void take_reasoning(const Json& body, GenerationRequest& request) {
  take_field(body, "include_reasoning", request.include_reasoning);
  const Json* effort = given(body, "reasoning_effort");
  if (effort == nullptr) return;
  Json& kwargs = request.chat.template_kwargs;
  if (!kwargs.contains("reasoning_effort")) kwargs["reasoning_effort"] = *effort;
  if (is_string(*effort, "none") && !kwargs.contains("enable_thinking")) {
    kwargs["enable_thinking"] = false;
  }
}

}  // namespace

GenerationRequest parse_chat_request(std::string_view text, const ModelInfo& model,
                                     const ApiDescription& api) {
  Json body = parse_object_body(text);
  const JsonClearer clearer(body);
  const RawJson raw(text);
  check_model(body, model);
  api.check(kChatSchemaName, body);
  GenerationRequest request;
  request.kind = RequestKind::kChat;
  request.warnings = api.near_misses(kChatSchemaName, body);
  request.add_special_tokens = false;  // the template writes them
  take_common_fields(body, raw, model, request);
  take_chat_logprobs(body, request);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (const Json* limit = given(body, name)) {
      request.sampling.max_tokens = limit->get<int64_t>();
      request.gave_max_tokens = true;
    }
  }
  check_sampling(request.sampling);
  if (!model.has_chat_template) {
    throw invalid_request(
        "The model has no chat template: it may be a base model; use /v1/completions.", "messages",
        "no_chat_template");
  }
  request.continue_final_message = continues_final_message(body);
  request.chat = take_chat(body);
  take_tool_choice(body, request);
  if (request.tool_choice != ToolChoice::kNone && !request.chat.tools.is_null()) {
    request.tool_parameters = tool_parameters(raw);
  }
  take_reasoning(body, request);
  return request;
}

}  // namespace quire::server
