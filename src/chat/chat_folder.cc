// Reads the chat template and the special tokens of a model folder.
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "chat/chat_template_impl.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The largest tokenizer_config.json that is read; published ones are below 1 MiB.
constexpr std::uintmax_t kMaxConfigBytes = 64 << 20;

std::string read_file(const fs::path& path, std::uintmax_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw Error("Cannot read " + path.string() + ": " + error.message() + ".");
  if (size > max_bytes) {
    throw Error(path.string() + " has " + std::to_string(size) + " bytes; at most " +
                std::to_string(max_bytes) + " are read.");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) throw Error("Cannot read " + path.string() + ".");
  return text;
}

// tokenizer_config.json as an object; an empty one where the folder has none.
json read_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!fs::exists(path)) return json::object();
  json config;
  try {
    config = json::parse(read_file(path, kMaxConfigBytes));
  } catch (const json::exception& e) {
    throw Error(path.string() + " is not valid JSON: " + e.what() + ".");
  }
  if (!config.is_object()) throw Error(path.string() + " must hold a JSON object.");
  return config;
}

ChatTemplate::SpecialTokens read_special_tokens(const fs::path& folder, const json& config) {
  // The named tokens that transformers gives to templates (special_tokens_map).
  static constexpr std::array<const char*, 7> kNames = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  ChatTemplate::SpecialTokens tokens;
  for (const char* name : kNames) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null()) continue;
    const bool is_object = found->is_object() && found->contains("content");
    const json& text = is_object ? (*found)["content"] : *found;
    if (!text.is_string()) {
      throw Error((folder / "tokenizer_config.json").string() + ": \"" + name +
                  "\" must be a string or an object with \"content\".");
    }
    tokens[name] = text.get<std::string>();
  }
  return tokens;
}

// Templates by name; one without a name is "default".
using Sources = std::map<std::string, std::string>;

Sources sources_from_config(const fs::path& folder, const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) return {{"default", found->get<std::string>()}};
  const std::string where = (folder / "tokenizer_config.json").string() + ": \"chat_template\"";
  if (!found->is_array()) {
    throw Error(where + " must be a string or a list of objects with \"name\" and \"template\".");
  }
  Sources sources;
  for (std::size_t i = 0; i < found->size(); ++i) {
    const json& entry = (*found)[i];
    const bool is_valid = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("template") &&
                          entry["template"].is_string();
    if (!is_valid) {
      throw Error(where + "[" + std::to_string(i) +
                  "] must be an object with the strings \"name\" and \"template\".");
    }
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return sources;
}

Sources read_sources(const fs::path& folder, const json& config, const TemplateLimits& limits) {
  const fs::path file = folder / "chat_template.jinja";
  if (!fs::exists(file)) return sources_from_config(folder, config);
  Sources sources = {{"default", read_file(file, limits.max_source_bytes)}};
  const fs::path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
  if (fs::exists(tool_use)) sources["tool_use"] = read_file(tool_use, limits.max_source_bytes);
  return sources;
}

void check_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw Error(folder.string() + " is no folder.");
}

}  // namespace

bool ChatTemplate::exists_in(const fs::path& folder) {
  if (fs::exists(folder / "chat_template.jinja")) return true;
  if (!fs::exists(folder / "tokenizer_config.json")) return false;
  const json config = read_config(folder);
  const auto found = config.find("chat_template");
  return found != config.end() && !found->is_null();
}

ChatTemplate ChatTemplate::from_folder(const fs::path& folder, TemplateLimits limits) {
  check_folder(folder);
  const json config = read_config(folder);
  const Sources sources = read_sources(folder, config, limits);
  if (sources.empty()) {
    throw Error(folder.string() +
                " has no chat template: neither chat_template.jinja nor \"chat_template\" in "
                "tokenizer_config.json. It may be a base model; give it plain prompts.");
  }
  const auto main = sources.find("default");
  if (main == sources.end()) {
    throw Error(folder.string() + " has chat templates but none of the name \"default\".");
  }
  auto impl = std::make_shared<Impl>();
  impl->limits = limits;
  impl->special_tokens = read_special_tokens(folder, config);
  try {
    impl->main = Impl::compile(main->second, limits);
    const auto tool_use = sources.find("tool_use");
    if (tool_use != sources.end()) impl->tool_use = Impl::compile(tool_use->second, limits);
  } catch (const Error& e) {
    throw Error(folder.string() + ": " + e.what());
  }
  return ChatTemplate(std::move(impl));
}

}  // namespace quire
