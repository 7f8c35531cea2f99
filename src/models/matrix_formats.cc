#include "models/matrix_formats.h"

#include <fmt/format.h>

#include "quire/error.h"

namespace quire {

MatrixFormat format_of(const ModelConfig& config, std::string_view prefix,
                       std::span<const std::string> modules) {
  if (!config.quantization) return {};
  const auto is_quantised = [&](const std::string& module) {
    return config.quantization->quantises(std::string(prefix) + module);
  };
  const bool quantised = is_quantised(modules.front());
  for (const std::string& module : modules) {
    if (is_quantised(module) == quantised) continue;
    throw Error(fmt::format(
        "config.json: quantization_config.ignore lists {0}{1} but not {0}{2}; expected both or "
        "neither, as the two are computed as one.",
        prefix, quantised ? module : modules.front(), quantised ? modules.front() : module));
  }
  return quantised ? MatrixFormat(ops::WeightFormat::float8()) : MatrixFormat();
}

std::string describe(const ops::WeightFormat& format) {
  return fmt::format("{}{}", name_of(format.dtype), format.has_scales() ? " with scales" : "");
}

}  // namespace quire
