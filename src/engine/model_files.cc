#include "engine/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxConfigBytes = 64 << 20;
constexpr std::string_view kTemplatesFolder = "additional_chat_templates";

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Files that are written anew.
bool is_replaced(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == "config.json" || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json");
}

bool is_copied(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  return !is_replaced(file) && !name.ends_with(".index.json") &&
         !is_one_of(name, {"README.md", "quantize_config.json", "quant_config.json",
                           "hf_quant_config.json", "recipe.yaml"}) &&
         !is_one_of(extension, {".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"});
}

void copy_text(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (!error) return;
  const std::string reason = error.message();
  if (fs::is_symlink(from, error) && !fs::exists(from, error)) {
    throw Error(fmt::format("{}: expected a file, and this is a link to nothing.", from.string()));
  }
  throw Error(fmt::format("{}: the file cannot be copied: {}.", from.string(), reason));
}

// The files of the folder, without those of sub-folders.
void copy_folder(const fs::path& from, const fs::path& to) {
  fs::create_directory(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (!entry.is_directory()) copy_text(entry.path(), to / entry.path().filename());
  }
}

}  // namespace

void write_text_file(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("{}: the file cannot be written.", path.string()));
}

nlohmann::ordered_json read_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  return parse_json_object(read_text_file(path, kMaxConfigBytes), path.string());
}

void rewrite_config(const fs::path& source, const fs::path& out,
                    const std::function<void(nlohmann::ordered_json&)>& edit) {
  nlohmann::ordered_json config = read_config(source);
  edit(config);
  write_text_file(out / "config.json", config.dump(2) + "\n");
}

std::vector<std::string> copy_texts(const fs::path& source, const fs::path& out) {
  std::vector<std::string> left_out;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    const fs::path name = entry.path().filename();
    if (name.string().starts_with('.')) continue;
    std::error_code error;
    if (entry.is_directory(error)) {
      if (name == kTemplatesFolder) {
        copy_folder(entry.path(), out / name);
      } else {
        left_out.push_back(name.string() + "/");
      }
    } else if (is_copied(name)) {
      copy_text(entry.path(), out / name);
    } else if (!is_replaced(name)) {
      left_out.push_back(name.string());
    }
  }
  std::ranges::sort(left_out);
  return left_out;
}

}  // namespace quire
