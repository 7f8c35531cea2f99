#pragma once
// What a chat template renders: messages, tools and variables, as JSON.
//
// A header of its own, as nlohmann/json.hpp takes long to compile and few files build a chat.
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// A message of plain text, for callers who need no tools.
struct Message {
  std::string role;  // "system", "user", "assistant", or what the template knows
  std::string content;
};

// The JSON array that ChatInput::messages holds. Throws nothing; texts are checked by render().
nlohmann::ordered_json messages_to_json(const std::vector<Message>& messages);

// One chat to render. The JSON keeps its keys' order: templates print it.
struct ChatInput {
  // An array with at least one object, each with a string "role". Other fields ("content",
  // "tool_calls", "reasoning_content", ...) go to the template as they are; fields that are null
  // are left out, and "reasoning" or "thinking" is also given as "reasoning_content".
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // An array of objects (JSON schemas of functions), or null for none.
  nlohmann::ordered_json tools;
  // Whether the prompt ends with the header of the assistant's answer.
  bool add_generation_prompt = true;
  // More variables for the template, e.g. {"enable_thinking": false}; an object. They override
  // special tokens. messages, tools, functions and add_generation_prompt are refused.
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
  // The local date and time that strftime_now() sees; the machine's clock where unset.
  std::optional<std::chrono::local_seconds> now;
};

}  // namespace quire
