#include "cli/prompts.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json_text.h"
#include "base/suggest.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr std::array<std::string_view, 3> kPromptFields = {"prompt", "prompt_token_ids",
                                                           "messages"};
constexpr std::array<std::string_view, 3> kChatFields = {"tools", "add_generation_prompt",
                                                         "chat_template_kwargs"};

constexpr std::string_view kPriorityField = "priority";
constexpr std::string_view kLoraField = "lora";

bool contains(const auto& names, std::string_view name) {
  for (const std::string_view known : names) {
    if (known == name) return true;
  }
  return false;
}

std::vector<std::string> known_fields() {
  std::vector<std::string> names = SamplingFields::names();
  names.insert(names.end(), kPromptFields.begin(), kPromptFields.end());
  names.insert(names.end(), kChatFields.begin(), kChatFields.end());
  names.emplace_back(kPriorityField);
  names.emplace_back(kLoraField);
  return names;
}

// The one field that says what the prompt is.
std::string_view prompt_field(const Json& object, std::string_view where) {
  std::string_view found;
  for (const std::string_view name : kPromptFields) {
    if (!object.contains(std::string(name))) continue;
    if (!found.empty()) {
      throw Error(
          fmt::format("{}: {} and {} are both given; expected one of them", where, found, name));
    }
    found = name;
  }
  if (found.empty()) {
    throw Error(fmt::format(
        "{}: there is no prompt; expected one of prompt, prompt_token_ids, messages", where));
  }
  return found;
}

int64_t priority_from_json(const Json& value, std::string_view where) {
  // Unsigned ones may be beyond int64.
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() >> 63)) {
    throw Error(fmt::format("{}: priority: expected an integer of 64 bits, got {}", where,
                            value.is_number() ? value.dump() : std::string(json_kind(value))));
  }
  return value.get<int64_t>();
}

// Null is the base model.
std::string lora_from_json(const Json& value, std::string_view where) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  throw Error(
      fmt::format("{}: lora: expected the name of an adapter, got {}", where, json_kind(value)));
}

}  // namespace

bool is_chat_field(std::string_view name) {
  return name == "messages" || contains(kChatFields, name);
}

ChatInput chat_from_json(const Json& object, std::string_view where) {
  ChatInput input;
  input.messages = object.at("messages");
  if (!input.messages.is_array() || input.messages.empty()) {
    throw Error(
        fmt::format("{}: messages: expected an array of at least one message, got {}", where,
                    input.messages.is_array() ? "an empty one" : json_kind(input.messages)));
  }
  if (const auto tools = object.find("tools"); tools != object.end() && !tools->is_null()) {
    if (!tools->is_array()) {
      throw Error(fmt::format("{}: tools: expected an array, got {}", where, json_kind(*tools)));
    }
    input.tools = *tools;
  }
  if (const auto flag = object.find("add_generation_prompt"); flag != object.end()) {
    if (!flag->is_boolean()) {
      throw Error(fmt::format("{}: add_generation_prompt: expected true or false, got {}", where,
                              json_kind(*flag)));
    }
    input.add_generation_prompt = flag->get<bool>();
  }
  if (const auto kwargs = object.find("chat_template_kwargs"); kwargs != object.end()) {
    if (!kwargs->is_object()) {
      throw Error(fmt::format("{}: chat_template_kwargs: expected an object, got {}", where,
                              json_kind(*kwargs)));
    }
    input.template_kwargs = *kwargs;
  }
  return input;
}

PromptRequest prompt_from_json_line(std::string_view line, std::string_view where) {
  const Json object = parse_json_object(line, where);
  const std::string_view kind = prompt_field(object, where);
  PromptRequest request{.where = std::string(where), .prompt = {}, .sampling = {}};
  for (const auto& [name, value] : object.items()) {
    if (name == kind) continue;
    if (contains(kChatFields, name)) {
      if (kind == "messages") continue;
      throw Error(fmt::format("{}: {} goes with messages, not with {}", where, name, kind));
    }
    if (name == kPriorityField) {
      request.priority = priority_from_json(value, where);
      continue;
    }
    if (name == kLoraField) {
      request.lora = lora_from_json(value, where);
      continue;
    }
    if (!SamplingFields::is_field(name)) {
      throw Error(
          fmt::format("{}: unknown field {}{}", where, name, did_you_mean(name, known_fields())));
    }
    request.sampling.set(name, value, where, line);
  }
  const Json& prompt = object.at(std::string(kind));
  if (kind == "messages") {
    request.prompt = chat_from_json(object, where);
  } else if (kind == "prompt_token_ids") {
    request.prompt = token_ids_from_json(prompt, fmt::format("{}: prompt_token_ids", where));
  } else {
    if (!prompt.is_string()) {
      throw Error(fmt::format("{}: prompt: expected a string, got {}", where, json_kind(prompt)));
    }
    request.prompt = prompt.get<std::string>();
  }
  return request;
}

std::vector<PromptRequest> read_prompts(std::istream& in, std::string_view name,
                                        PromptFormat format) {
  std::vector<PromptRequest> requests;
  for (size_t number = 1;; ++number) {
    std::string where = fmt::format("{} line {}", name, number);
    std::optional<std::string> line = read_line(in, where);
    if (!line) break;
    if (line->ends_with('\r')) line->pop_back();  // a file of another system's lines
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    if (format == PromptFormat::kJsonl) {
      requests.push_back(prompt_from_json_line(*line, where));
    } else {
      requests.push_back({.where = std::move(where), .prompt = std::move(*line), .sampling = {}});
    }
  }
  if (requests.empty()) throw Error(fmt::format("{} holds no prompt", name));
  return requests;
}

std::vector<PromptRequest> read_prompt_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    throw Error(fmt::format("{}: expected a file of prompts, and this is a folder", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return read_prompts(file, path,
                      path.ends_with(".jsonl") ? PromptFormat::kJsonl : PromptFormat::kText);
}

std::vector<int32_t> parse_token_ids(const std::string& text, std::string_view option) {
  const Json list = Json::parse("[" + text + "]", nullptr, false);
  if (!list.is_array() || list.empty()) {
    throw UsageError(fmt::format("{}: expected token ids like 1,2,3, got '{}'", option, text));
  }
  try {
    return token_ids_from_json(list, option);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace quire::cli
