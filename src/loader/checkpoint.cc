#include "loader/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "loader/gguf_checkpoint.h"
#include "loader/gguf_names.h"
#include "loader/json_fields.h"
#include "loader/safetensors.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr int kMaxIndexDepth = 8;

// Some of the names in the folder, for a message.
std::string listing(const fs::path& folder) {
  constexpr size_t kMaxNames = 20;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (names.empty()) return "The folder is empty.";
  std::sort(names.begin(), names.end());
  const size_t more = names.size() > kMaxNames ? names.size() - kMaxNames : 0;
  names.resize(names.size() - more);
  return fmt::format("The folder holds {}{}.", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

bool holds_file_with(const fs::path& folder, std::string_view extension) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == extension) return true;
  }
  return false;
}

[[noreturn]] void throw_no_weights(const fs::path& folder) {
  std::string hint;
  if (holds_file_with(folder, ".safetensors")) {
    hint = fmt::format(" Shards need {}, which says what each holds.", kIndexFile);
  } else if (holds_file_with(folder, ".bin") || holds_file_with(folder, ".pth") ||
             holds_file_with(folder, ".pt")) {
    hint = " PyTorch's own format is not read: save the model with safetensors.";
  } else if (holds_file_with(folder, ".gguf")) {
    hint = " Name one of the .gguf files to run it.";
  }
  throw Error(fmt::format("{}: there are no weights: expected {} or {}.{} {}", folder.string(),
                          kSingleFile, kIndexFile, hint, listing(folder)));
}

// A shard's name comes from an unchecked file: it must not lead out of the folder.
void check_shard_name(const std::string& shard, const std::string& tensor,
                      const std::string& index) {
  const bool plain = !shard.empty() && shard.find('/') == std::string::npos &&
                     shard.find('\0') == std::string::npos && shard.ends_with(".safetensors");
  if (!plain) {
    throw Error(
        fmt::format("{}: weight_map gives {} for {}; expected the name of a .safetensors file in "
                    "the same folder.",
                    index, loader_internal::shown(shard), loader_internal::shown(tensor)));
  }
}

using WeightMap = std::map<std::string, std::set<std::string>>;  // shard -> its tensors

WeightMap read_index(const fs::path& path) {
  const std::string name = path.string();
  const nlohmann::ordered_json json =
      parse_json_object(read_text_file(path, kMaxIndexBytes), name, {.max_depth = kMaxIndexDepth});
  const loader_internal::JsonFields index(json, name);
  const auto* weight_map = index.object("weight_map") ? index.find("weight_map") : nullptr;
  if (weight_map == nullptr || weight_map->empty()) {
    throw Error(
        fmt::format("{}: the field weight_map is missing or empty; expected an object that gives "
                    "each tensor's file.",
                    name));
  }
  WeightMap result;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string()) {
      throw Error(fmt::format("{}: weight_map gives {} for {}; expected the name of a file.", name,
                              loader_internal::shown(shard), loader_internal::shown(tensor)));
    }
    check_shard_name(shard.get<std::string>(), tensor, name);
    result[shard.get<std::string>()].insert(tensor);
  }
  return result;
}

void check_shards_exist(const fs::path& folder, const WeightMap& map) {
  std::vector<std::string> missing;
  for (const auto& [shard, tensors] : map) {
    if (!fs::exists(folder / shard)) missing.push_back(shard);
  }
  if (missing.empty()) return;
  constexpr size_t kMaxNames = 10;
  const size_t more = missing.size() > kMaxNames ? missing.size() - kMaxNames : 0;
  missing.resize(missing.size() - more);
  throw Error(fmt::format("{}: {} lists {} files that are missing: {}{}.", folder.string(),
                          kIndexFile, missing.size() + more, fmt::join(missing, ", "),
                          more > 0 ? fmt::format(" and {} more", more) : ""));
}

void check_against_index(const std::vector<CheckpointTensor>& tensors, const std::string& file,
                         const std::set<std::string>& listed) {
  std::set<std::string> unseen = listed;
  for (const CheckpointTensor& tensor : tensors) {
    if (unseen.erase(tensor.name) == 0) {
      throw Error(fmt::format("{}: tensor {} is in this file, but {} does not say so.", file,
                              loader_internal::shown(tensor.name), kIndexFile));
    }
  }
  if (!unseen.empty()) {
    throw Error(
        fmt::format("{}: {} tensors are missing from this file though {} lists them here, {} "
                    "among them.",
                    file, unseen.size(), kIndexFile, loader_internal::shown(*unseen.begin())));
  }
}

}  // namespace

int64_t CheckpointTensor::stored_row(int64_t row) const {
  if (rotary_heads == 0) return row;
  const int64_t head_dim = shape.front() / rotary_heads;
  const int64_t half = head_dim / 2;
  const int64_t element = row % head_dim;
  return row - element + 2 * (element % half) + element / half;
}

std::string CheckpointTensor::describe() const {
  return fmt::format("[{}] {}", fmt::join(shape, ", "), dtype);
}

struct Checkpoint::State {
  std::vector<std::pair<std::string, MappedFile>> files;  // by name; tensors point into them
  std::vector<CheckpointTensor> tensors;
  std::unordered_map<std::string_view, size_t> by_name;  // views of the names in `tensors`
  size_t total_bytes = 0;
  std::string gguf_architecture;  // none: a folder

  static std::unique_ptr<State> of_folder(const fs::path& folder);
  static std::unique_ptr<State> of_gguf(const fs::path& path);

  // Appends the file's tensors and returns them.
  std::vector<CheckpointTensor> add(const fs::path& path) {
    MappedFile file = MappedFile::open(path);
    std::vector<CheckpointTensor> found = parse_safetensors(file.bytes(), path.string());
    files.emplace_back(path.string(), std::move(file));
    tensors.insert(tensors.end(), found.begin(), found.end());
    return found;
  }

  void finish() {
    for (size_t i = 0; i < tensors.size(); ++i) {
      by_name.emplace(tensors[i].name, i);
      total_bytes += tensors[i].bytes;
    }
  }

  const MappedFile& file_of(const CheckpointTensor& tensor) const {
    const auto it = std::find_if(files.begin(), files.end(),
                                 [&](const auto& file) { return file.first == tensor.file; });
    check(it != files.end(), "the tensor belongs to another checkpoint");
    return it->second;
  }
};

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& model) {
  return Checkpoint(is_gguf_path(model) ? State::of_gguf(model) : State::of_folder(model));
}

std::unique_ptr<Checkpoint::State> Checkpoint::State::of_gguf(const fs::path& path) {
  auto state = std::make_unique<State>();
  GgufModel model = GgufModel::open(path);
  state->tensors = gguf_checkpoint_tensors(model);
  state->gguf_architecture = model.header().required_string("general.architecture");
  for (GgufModel::Part& part : std::move(model).take_parts()) {
    state->files.emplace_back(part.file.name(), std::move(part.mapped));
  }
  state->finish();
  return state;
}

std::unique_ptr<Checkpoint::State> Checkpoint::State::of_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: expected a folder with a model's weights, but there is {}.",
                            folder.string(), fs::exists(folder) ? "a file" : "nothing"));
  }
  auto state = std::make_unique<State>();
  if (fs::exists(folder / kSingleFile)) {
    state->add(folder / kSingleFile);
  } else if (fs::exists(folder / kIndexFile)) {
    const WeightMap map = read_index(folder / kIndexFile);
    check_shards_exist(folder, map);
    for (const auto& [shard, listed] : map) {
      const fs::path path = folder / shard;
      check_against_index(state->add(path), path.string(), listed);
    }
  } else {
    throw_no_weights(folder);
  }
  state->finish();
  return state;
}

const std::vector<CheckpointTensor>& Checkpoint::tensors() const {
  return state_->tensors;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = state_->by_name.find(name);
  return it == state_->by_name.end() ? nullptr : &state_->tensors[it->second];
}

std::string_view Checkpoint::config_name() const {
  return state_->gguf_architecture.empty() ? "config.json" : "the file's metadata";
}

std::string Checkpoint::name_in_files(const std::string& name) const {
  if (state_->gguf_architecture.empty()) return name;
  return gguf_name(state_->gguf_architecture, name);
}

size_t Checkpoint::total_bytes() const {
  return state_->total_bytes;
}

void Checkpoint::release(const CheckpointTensor& tensor) const {
  state_->file_of(tensor).release({tensor.data, tensor.bytes});
}

}  // namespace quire
