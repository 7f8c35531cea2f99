#include "loader/lora_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "loader/json_fields.h"
#include "loader/safetensors.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kPickleFile = "adapter_model.bin";

// What PEFT calls the model that it wraps.
constexpr std::string_view kPeftPrefix = "base_model.model.";
// What PEFT calls an adapter that was given no other name.
constexpr std::string_view kPeftAdapter = "default.";

// Takes the first ".PART" or ".PART.default" out of a tensor's name: PEFT's older versions left
// them in what they saved.
void erase_part(std::string& name, std::string_view part) {
  const std::string dotted = fmt::format(".{}.", part);
  const size_t begin = name.find(dotted);
  if (begin == std::string::npos) return;
  name.erase(begin, dotted.size() - 1);
  if (name.compare(begin + 1, kPeftAdapter.size(), kPeftAdapter) == 0) {
    name.erase(begin + 1, kPeftAdapter.size());
  }
}

// What a tensor of an adapter's matrices is called: MODULE.PART, MODULE.PART.LEAF and, by older
// versions, with the adapter's name behind PART.
struct LoraTensorName {
  std::string module;
  std::string part;  // "lora_A"
  std::string leaf;  // "weight", "bias" or nothing
};

std::optional<LoraTensorName> split_lora_name(const std::string& name) {
  constexpr std::array<std::string_view, 5> kParts = {"lora_A", "lora_B", "lora_embedding_A",
                                                      "lora_embedding_B", "lora_magnitude_vector"};
  for (const std::string_view part : kParts) {
    const std::string dotted = fmt::format(".{}", part);
    const size_t begin = name.rfind(dotted);
    if (begin == std::string::npos) continue;
    const std::string rest = name.substr(begin + dotted.size());
    if (!rest.empty() && rest.front() != '.') continue;
    const bool has_leaf = rest.ends_with(".weight") || rest.ends_with(".bias");
    return LoraTensorName{name.substr(0, begin), std::string(part),
                          has_leaf ? rest.substr(rest.rfind('.') + 1) : ""};
  }
  return std::nullopt;
}

const CheckpointTensor** place_of(LoraModule& module, const LoraTensorName& name) {
  if (name.part == "lora_magnitude_vector") return &module.magnitude;
  const bool is_a = name.part.ends_with("_A");
  if (name.leaf == "bias") return is_a ? nullptr : &module.b_bias;
  return is_a ? &module.a : &module.b;
}

// A name from the file as a message shows it: long enough for those of real models.
std::string name_in_message(const std::string& name) {
  constexpr size_t kMaxLength = 200;
  return name.size() <= kMaxLength ? name : name.substr(0, kMaxLength) + "...";
}

bool is_dense_type(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

using LoraShape = std::vector<int64_t>;

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string LoraAdapter::file() const {
  return (folder_ / kWeightsFile).string();
}

std::string LoraAdapter::config_file() const {
  return (folder_ / "adapter_config.json").string();
}

std::string LoraAdapter::at(const CheckpointTensor& tensor) const {
  return fmt::format("{}: the tensor {}", file(), name_in_message(tensor.name));
}

LoraAdapter::LoraAdapter(const fs::path& folder)
    : folder_(folder), config_(load_lora_config(folder)) {
  std::error_code error;
  if (!fs::exists(folder / kWeightsFile, error)) {
    throw Error(fmt::format(
        "{}: the folder has no {}{}", folder.string(), kWeightsFile,
        fs::exists(folder / kPickleFile, error)
            ? fmt::format(", only {}; PyTorch's own format is not read: save the adapter with "
                          "safetensors.",
                          kPickleFile)
            : "; expected an adapter that PEFT has saved."));
  }
}

LoraAdapter LoraAdapter::open(const fs::path& folder) {
  LoraAdapter adapter(folder);
  adapter.mapped_ = MappedFile::open(folder / kWeightsFile);
  adapter.take(adapter.mapped_->bytes());
  return adapter;
}

LoraAdapter LoraAdapter::read(const fs::path& folder) {
  LoraAdapter adapter(folder);
  adapter.read_ = read_file_bytes(folder / kWeightsFile);
  adapter.take(adapter.read_.bytes());
  return adapter;
}

void LoraAdapter::take(std::span<const std::byte> content) {
  tensors_ = parse_safetensors(content, file());
  sort_tensors();
  check_modules();
}

void LoraAdapter::sort_tensors() {
  std::map<std::string, LoraModule> modules;
  for (const CheckpointTensor& tensor : tensors_) {
    total_bytes_ += tensor.bytes;
    if (!is_dense_type(tensor.dtype)) {
      throw Error(
          fmt::format("{} is {}; expected F32, F16 or BF16.", at(tensor), tensor.describe()));
    }
    std::string name = tensor.name;
    if (name.starts_with(kPeftPrefix)) name.erase(0, kPeftPrefix.size());
    const std::optional<LoraTensorName> parts = split_lora_name(name);
    if (!parts) {
      add_replaced(tensor, std::move(name));
      continue;
    }
    LoraModule& module = modules[parts->module];
    module.is_embedding = module.is_embedding || parts->part.starts_with("lora_embedding");
    const CheckpointTensor** place = place_of(module, *parts);
    if (place == nullptr) {
      throw Error(fmt::format("{} is unknown; expected no bias of lora_A.", at(tensor)));
    }
    if (*place != nullptr) {
      throw Error(fmt::format("{} stands for the same as {}; expected one adapter in the file.",
                              at(tensor), name_in_message((*place)->name)));
    }
    *place = &tensor;
  }
  for (auto& [name, module] : modules) {
    module.name = name;
    modules_.push_back(std::move(module));
  }
}

void LoraAdapter::add_replaced(const CheckpointTensor& tensor, std::string name) {
  // The base model's own, beside a trained copy.
  if (name.find(".original_module.") != std::string::npos) return;
  erase_part(name, "modules_to_save");
  erase_part(name, "base_layer");
  if (!name.ends_with(".weight") && !name.ends_with(".bias")) {
    throw Error(
        fmt::format("{} is unknown; expected weights of LoRA, or a weight or bias of the "
                    "base model.",
                    at(tensor)));
  }
  const auto [place, is_new] = replaced_.emplace(std::move(name), &tensor);
  if (is_new) return;
  throw Error(fmt::format("{} stands for the same as {}; expected one of them.", at(tensor),
                          name_in_message(place->second->name)));
}

void LoraAdapter::check_modules() {
  for (LoraModule& module : modules_) {
    check_parts(module);
    module.rank = config_.rank_of(module.name);
    module.scale = config_.scale_of(module.name);
    check_shapes(module);
  }
  check_saved_modules();
  if (modules_.empty() && replaced_.empty()) {
    throw Error(fmt::format("{}: the file holds no weights of an adapter.", file()));
  }
}

void LoraAdapter::check_parts(const LoraModule& module) const {
  const std::string where = fmt::format("{}: the module {}", file(), module.name);
  if (!config_.targets_module(module.name)) {
    throw Error(
        fmt::format("{} has weights of LoRA, but {} does not target it.", where, config_file()));
  }
  if (module.a == nullptr || module.b == nullptr) {
    throw Error(fmt::format("{} lacks the matrix {}; expected lora_A and lora_B.", where,
                            module.a == nullptr ? "lora_A" : "lora_B"));
  }
  if (config_.dora != (module.magnitude != nullptr)) {
    throw Error(fmt::format("{} has {} lora_magnitude_vector, but use_dora of {} is {}.", where,
                            config_.dora ? "no" : "a", config_file(), config_.dora));
  }
}

void LoraAdapter::check_shapes(const LoraModule& module) const {
  const auto expect = [&](const CheckpointTensor& tensor, const LoraShape& shape,
                          const std::string& why) {
    if (tensor.shape == shape) return;
    throw Error(fmt::format("{} is {}; expected {}, as {}.", at(tensor), tensor.describe(),
                            shape_text(shape), why));
  };
  for (const CheckpointTensor* matrix : {module.a, module.b}) {
    if (matrix->shape.size() == 2) continue;
    throw Error(fmt::format("{} is {}; expected a matrix.", at(*matrix), matrix->describe()));
  }
  const std::string rank = fmt::format("{} gives the rank {}", config_file(), module.rank);
  expect(*module.a, {module.rank, module.inputs()}, rank);
  expect(*module.b, {module.outputs(), module.rank}, rank);
  for (const CheckpointTensor* vector : {module.magnitude, module.b_bias}) {
    if (vector == nullptr) continue;
    expect(*vector, {module.outputs()},
           fmt::format("{} is {}", name_in_message(module.b->name), module.b->describe()));
  }
}

void LoraAdapter::check_saved_modules() const {
  for (const std::string& name : config_.modules_to_save) {
    LoraConfig only;
    only.modules_to_save = {name};
    if (std::ranges::any_of(replaced_,
                            [&](const auto& tensor) { return only.saves_module(tensor.first); })) {
      continue;
    }
    throw Error(
        fmt::format("{}: there is no weight of the module {}, which modules_to_save of {} names.",
                    file(), loader_internal::shown(name), config_file()));
  }
}

const LoraModule* LoraAdapter::find(std::string_view module) const {
  const auto found = std::ranges::lower_bound(modules_, module, {}, &LoraModule::name);
  return found != modules_.end() && found->name == module ? &*found : nullptr;
}

}  // namespace quire
