#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "server/api/request_fields.h"

// Puts messages into the form that chat templates expect.
namespace quire::server {
namespace {

std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (&part != &parts.front()) text += '\n';
    text += part.at(part.at("type").get_ref<const std::string&>()).get_ref<const std::string&>();
  }
  return text;
}

// Templates print arguments as JSON; clients send them as a text that holds JSON.
void open_arguments(Json& function) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || arguments->is_null()) {
    function["arguments"] = Json::object();
    return;
  }
  if (!arguments->is_string()) return;
  try {
    Json value = parse_json_text(arguments->get_ref<const std::string&>(),
                                 {.max_depth = kMaxBodyDepth, .allow_repeated_keys = true});
    const JsonClearer clearer(value);
    if (value.is_object()) *arguments = std::move(value);
  } catch (const JsonError&) {
    // A model's earlier call may not be valid JSON; the template then gets it unchanged.
  }
}

void normalize(Json& message) {
  Json& role = message["role"];
  if (is_string(role, "developer")) role = "system";
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    message["content"] = "";
  } else if (content->is_array()) {
    Json text = joined_parts(*content);
    clear_json(*content);
    *content = std::move(text);
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return;
  for (Json& call : *calls) open_arguments(call["function"]);
}

}  // namespace

bool continues_final_message(const Json& body) {
  bool value = false;
  take_field(body, "continue_final_message", value);
  return value;
}

OwnedChat take_chat(Json& body) {
  OwnedChat chat;
  chat.messages = std::move(body.at("messages"));
  for (Json& message : chat.messages) normalize(message);
  if (const Json* tools = given(body, "tools"); tools != nullptr && !tools->empty()) {
    chat.tools = std::move(body.at("tools"));
  }
  chat.add_generation_prompt = !continues_final_message(body);
  take_field(body, "add_generation_prompt", chat.add_generation_prompt);
  if (given(body, "chat_template_kwargs") != nullptr) {
    chat.template_kwargs = std::move(body.at("chat_template_kwargs"));
  }
  return chat;
}

}  // namespace quire::server
