#include "quire/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_text.h"
#include "chat/chat_template_impl.h"
#include "chat/interpreter.h"
#include "chat/json_value.h"
#include "chat/parser.h"
#include "chat/text.h"
#include "quire/chat_input.h"
#include "quire/error.h"

namespace quire {
namespace {

using chat_internal::Interpreter;
using chat_internal::json_to_value;
using chat_internal::MarkedText;
using chat_internal::Origin;
using chat_internal::Runtime;
using nlohmann::ordered_json;

void check_messages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) {
    throw Error("The chat's messages must be an array with at least one message.");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "The chat's messages[" + std::to_string(i) + "]";
    const ordered_json& message = messages[i];
    if (!message.is_object()) {
      throw Error(where + " must be an object with \"role\" and \"content\", not a " +
                  message.type_name() + ".");
    }
    const auto role = message.find("role");
    if (role == message.end()) throw Error(where + " lacks the field \"role\".");
    if (!role->is_string()) {
      throw Error(where + ".role must be a string, not a " + std::string(role->type_name()) + ".");
    }
    const auto content = message.find("content");
    if (content != message.end() && !content->is_string() && !content->is_array() &&
        !content->is_object() && !content->is_null()) {
      throw Error(where + ".content must be a string or a list of parts, not a " +
                  std::string(content->type_name()) + ".");
    }
  }
}

// Without fields that are null, and with the reasoning under the name that templates read: what
// transformers' apply_chat_template and _alias_reasoning_fields do.
void normalize_message(const ordered_json& message, ordered_json& out) {
  static constexpr std::array<const char*, 3> kReasoningNames = {"reasoning_content", "thinking",
                                                                 "reasoning"};
  const ordered_json* reasoning = nullptr;
  for (const char* name : kReasoningNames) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) {
      reasoning = &*found;
      break;
    }
  }
  out = ordered_json::object();
  ordered_json::object_t::Container& members = out.get_ref<ordered_json::object_t&>();
  members.reserve(message.size() + 2);  // to grow it would be to copy all that it holds
  if (reasoning != nullptr) copy_json(*reasoning, out["thinking"]);
  // The other keys differ, and looking them up would make one large message quadratic.
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    if (key == "thinking") {
      copy_json(value, out[key]);
    } else {
      members.emplace_back(key, nullptr);
      copy_json(value, members.back().second);
    }
  }
  if (reasoning != nullptr) copy_json(*reasoning, out["reasoning_content"]);
}

void normalize_messages(const ordered_json& messages, ordered_json& out) {
  out = ordered_json::array();
  auto& items = out.get_ref<ordered_json::array_t&>();
  for (const auto& message : messages) normalize_message(message, items.emplace_back());
}

void check_tools(const ordered_json& tools) {
  if (tools.is_null()) return;
  if (!tools.is_array()) throw Error("The chat's tools must be an array of JSON schemas.");
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) {
      throw Error("The chat's tools[" + std::to_string(i) + "] must be an object, not a " +
                  tools[i].type_name() + ".");
    }
  }
}

void check_kwargs(const ordered_json& kwargs) {
  static constexpr std::array<std::string_view, 8> kTaken = {
      "messages",      "tools",    "functions",    "add_generation_prompt",
      "chat_template", "tokenize", "conversation", "continue_final_message"};
  if (kwargs.is_null()) return;
  if (!kwargs.is_object()) throw Error("The chat's template_kwargs must be an object.");
  for (const auto& [name, value] : kwargs.items()) {
    if (std::find(kTaken.begin(), kTaken.end(), name) != kTaken.end()) {
      throw Error("The chat's template_kwargs must not set \"" + name +
                  "\", which has a field of its own or is no variable of a template.");
    }
  }
}

}  // namespace

ordered_json messages_to_json(const std::vector<Message>& messages) {
  ordered_json out = ordered_json::array();
  for (const Message& message : messages) {
    ordered_json object = ordered_json::object();
    object["role"] = message.role;
    object["content"] = message.content;
    out.push_back(std::move(object));
  }
  return out;
}

ChatTemplate::Impl::Compiled ChatTemplate::Impl::compile(std::string_view source,
                                                         const TemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    throw Error("The chat template has " + std::to_string(source.size()) + " bytes; at most " +
                std::to_string(limits.max_source_bytes) +
                " are allowed (TemplateLimits::max_source_bytes).");
  }
  const std::size_t invalid = chat_internal::find_invalid_utf8(source);
  if (invalid != std::string_view::npos) {
    throw Error("The chat template is not valid UTF-8 at byte " + std::to_string(invalid) + ".");
  }
  return {std::string(source), chat_internal::parse_template(source, limits)};
}

ChatTemplate::ChatTemplate(std::string_view source, SpecialTokens special_tokens,
                           TemplateLimits limits) {
  auto impl = std::make_shared<Impl>();
  impl->main = Impl::compile(source, limits);
  impl->special_tokens = std::move(special_tokens);
  impl->limits = limits;
  impl_ = std::move(impl);
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

const std::string& ChatTemplate::source() const {
  return impl_->main.source;
}

std::string ChatTemplate::render(const ChatInput& input) const {
  return render_marked(input).text;
}

RenderedChat ChatTemplate::render_marked(const ChatInput& input) const {
  check_messages(input.messages);
  check_tools(input.tools);
  check_kwargs(input.template_kwargs);
  Runtime runtime(impl_->limits);
  Interpreter interpreter(runtime, input.now);
  for (const auto& [name, token] : impl_->special_tokens) {
    interpreter.set_variable(name, json_to_value(runtime, token, name));
  }
  interpreter.set_variable("documents", chat_internal::Value::none());
  if (input.template_kwargs.is_object()) {
    for (const auto& [name, value] : input.template_kwargs.items()) {
      interpreter.set_variable(
          name, json_to_value(runtime, value, "template_kwargs." + name, Origin::kChat));
    }
  }
  ordered_json messages;
  const JsonClearer clearer(messages);
  normalize_messages(input.messages, messages);
  interpreter.set_variable("messages", json_to_value(runtime, messages, "messages", Origin::kChat));
  interpreter.set_variable("tools", json_to_value(runtime, input.tools, "tools", Origin::kChat));
  interpreter.set_variable("add_generation_prompt",
                           chat_internal::Value::boolean(input.add_generation_prompt));
  const bool has_own = !input.tools.is_null() && impl_->tool_use.has_value();
  MarkedText text = interpreter.render(has_own ? impl_->tool_use->body : impl_->main.body);
  std::vector<TextSpan> marks = text.marks();
  return {std::move(text).take_text(), std::move(marks)};
}

}  // namespace quire
