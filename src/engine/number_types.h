#pragma once
// The types of numbers that a model is computed and cached in, as the settings and its device want.
//
// Each throws Error if a setting does not go with the model or the device. Thread safety: free
// functions of their arguments.
#include "core/dtype.h"
#include "engine/device_choice.h"
#include "loader/model_config.h"
#include "quire/engine_config.h"
#include "runner/model_runner.h"

namespace quire {

// The whole model on its device, without the sizes of an engine.
ModelOptions choose_model(const EngineConfig& config, const ModelConfig& model,
                          const DeviceChoice& choice);

// `dtype`: the activations'.
DType choose_kv_cache_dtype(const EngineConfig& config, const ModelConfig& model, DType dtype,
                            bool on_gpu);
// Whether a checkpoint's scales of keys and values count: numbers of e5m2 reach far enough without.
bool takes_scales(DType kv_cache_dtype);

}  // namespace quire
