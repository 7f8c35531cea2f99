#include "models/matrix_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "quire/error.h"

namespace quire {

MatrixFormat format_of(const ModelConfig& config, std::string_view prefix,
                       std::span<const std::string> modules) {
  if (!config.quantization) return {};
  MatrixFormat format;
  for (const std::string& module : modules) {
    const std::string name = std::string(prefix) + module;
    if (auto scheme = config.quantization->scheme_of(name)) {
      format.modules.push_back({name, std::move(*scheme)});
    }
  }
  if (format.is_dense() || format.modules.size() == modules.size()) return format;
  if (format.is_gguf()) return {};
  const auto is_quantised = [&](const std::string& module) {
    return config.quantization->scheme_of(std::string(prefix) + module).has_value();
  };
  const auto dense = std::find_if_not(modules.begin(), modules.end(), is_quantised);
  throw Error(fmt::format(
      "config.json: quantization_config quantises {} but not {}{}; expected both or neither, as "
      "the two are computed as one.",
      format.modules.front().name, prefix, *dense));
}

namespace {

// A GPU's activations are of the model's type.
std::string describe_integers(const ops::WeightFormat& format, DeviceType device) {
  const std::string groups = format.group_size == 0
                                 ? std::string("with a scale for each output")
                                 : fmt::format("in groups of {}", format.group_size);
  const char* activations =
      format.rounds_activations ? ", activations int8" : ", activations float32";
  return fmt::format("{} {}{}{}", format.kind == ops::WeightKind::kInt4 ? "int4" : "int8", groups,
                     format.has_offsets ? " with offsets" : "",
                     device == DeviceType::kCpu ? activations : "");
}

}  // namespace

std::string describe(const MatrixProduct& product) {
  const ops::WeightFormat& format = product.format;
  std::string text(name_of(format.dtype));
  if (format.is_integer()) {
    text = describe_integers(format, product.device);
  } else if (format.has_scales()) {
    text += format.group_size == 0 ? " with scales" : " with scales of blocks";
  }
  return product.stored_as.empty() ? text : fmt::format("{} from {}", text, product.stored_as);
}

}  // namespace quire
