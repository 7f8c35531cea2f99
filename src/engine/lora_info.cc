#include "quire/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "loader/lora_adapter.h"

namespace quire {
namespace fs = std::filesystem;

bool is_lora_adapter(const std::string& folder) {
  std::error_code error;
  return is_lora_folder(folder) && !fs::exists(fs::path(folder) / "config.json", error);
}

LoraInfo inspect_lora(const std::string& folder) {
  const LoraAdapter adapter = LoraAdapter::open(folder);
  const LoraConfig& config = adapter.config();
  LoraInfo info;
  info.folder = folder;
  info.kind = config.kind();
  info.base_model = config.base_model;
  for (const LoraModule& module : adapter.modules()) {
    info.modules.push_back({module.name, module.rank, config.alpha_of(module.name), module.scale,
                            module.inputs(), module.outputs()});
  }
  for (const auto& [name, tensor] : adapter.replaced()) info.replaced.push_back(name);
  std::set<std::string> dtypes;
  for (const CheckpointTensor& tensor : adapter.tensors()) {
    dtypes.insert(tensor.dtype);
    info.num_parameters += static_cast<int64_t>(tensor.bytes / (tensor.dtype == "F32" ? 4 : 2));
  }
  info.dtype = fmt::format("{}", fmt::join(dtypes, ", "));
  info.bytes = static_cast<int64_t>(adapter.total_bytes());
  return info;
}

}  // namespace quire
