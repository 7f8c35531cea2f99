#include "engine/number_types.h"

#include <fmt/format.h>

#include <string>

#include "core/kv_cache_view.h"
#include "engine/setting_checks.h"
#include "ops/linear.h"

namespace quire {
namespace {

// On the CPU float16 checkpoints are held as float32, which has every float16 number; bfloat16
// would round them. Integer checkpoints are the exception: their products are several times faster
// if activations may be rounded.
DType choose_dtype(const EngineConfig& config, const ModelConfig& model, bool on_gpu) {
  if (config.dtype == "auto") {
    if (on_gpu) return model.dtype;
    const bool has_integers = config.quantization == "int8" || config.quantization == "int4" ||
                              (model.quantization && model.quantization->has_integers());
    return model.dtype == DType::kBFloat16 || has_integers ? DType::kBFloat16 : DType::kFloat32;
  }
  if (config.dtype == "float32") return DType::kFloat32;
  if (config.dtype == "bfloat16") return DType::kBFloat16;
  require(
      config.dtype == "float16",
      fmt::format("--dtype is \"{}\"; expected auto, float32, bfloat16 or float16.", config.dtype));
  require(on_gpu, "--dtype float16 needs a GPU; on the CPU float32 holds every float16.");
  return DType::kFloat16;
}

// Depends on the kind of GPU. Matrices of sizes that do not fit stay dense.
void check_rounding(const std::string& to, const DeviceChoice& choice, DType dtype) {
  require(dtype != DType::kFloat32,
          fmt::format("--quantization {} goes with --dtype bfloat16 or float16, not float32, on a "
                      "GPU.",
                      to));
  require(choice.compute_capability != 0,
          fmt::format("--quantization {} needs GPUs of compute capability {}.{}, and the ranks' "
                      "GPUs differ in theirs; leave the option out, or use --device cpu.",
                      to, ops::kQuantisedCapability / 10, ops::kQuantisedCapability % 10));
  require(choice.compute_capability == ops::kQuantisedCapability,
          fmt::format("--quantization {} needs a GPU of compute capability {}.{}, and {} has "
                      "{}.{}; leave the option out, or use --device cpu.",
                      to, ops::kQuantisedCapability / 10, ops::kQuantisedCapability % 10,
                      choice.name, choice.compute_capability / 10, choice.compute_capability % 10));
}

WeightRounding choose_rounding(const EngineConfig& config, const DeviceChoice& choice,
                               DType dtype) {
  if (config.quantization == "none") return WeightRounding::kNone;
  if (choice.on_gpu()) check_rounding(config.quantization, choice, dtype);
  if (config.quantization == "fp8") return WeightRounding::kFloat8;
  return config.quantization == "int8" ? WeightRounding::kInt8 : WeightRounding::kInt4;
}

}  // namespace

ModelOptions choose_model(const EngineConfig& config, const ModelConfig& model,
                          const DeviceChoice& choice) {
  const bool on_gpu = choice.on_gpu();
  ModelOptions options;
  options.config = model;
  options.dtype = choose_dtype(config, model, on_gpu);
  options.rounding = choose_rounding(config, choice, options.dtype);
  if (on_gpu) options.device.type = DeviceType::kCuda;
  options.device.compute_capability = choice.compute_capability;
  return options;
}

bool takes_scales(DType kv_cache_dtype) {
  return kv_cache_dtype == DType::kFloat8E4M3;
}

DType choose_kv_cache_dtype(const EngineConfig& config, const ModelConfig& model, DType dtype,
                            bool on_gpu) {
  if (config.kv_cache_dtype == "auto") return dtype;
  const bool is_int8 = config.kv_cache_dtype == "int8";
  if (on_gpu) {
    require(!is_int8,
            "--kv-cache-dtype int8 needs the CPU (--device cpu); GPUs have kernels for fp8 and "
            "fp8_e5m2.");
    require(dtype != DType::kFloat32,
            fmt::format("--kv-cache-dtype {} goes with --dtype bfloat16 or float16, not float32, "
                        "on a GPU.",
                        config.kv_cache_dtype));
  } else {
    require(takes_narrow_cache(model.head_dim),
            fmt::format("--kv-cache-dtype {}: this model's head_dim is {}; expected a multiple of "
                        "8, at most {}.",
                        config.kv_cache_dtype, model.head_dim, kMaxNarrowHeadDim));
  }
  if (is_int8) return DType::kInt8;
  return config.kv_cache_dtype == "fp8_e5m2" ? DType::kFloat8E5M2 : DType::kFloat8E4M3;
}

}  // namespace quire
