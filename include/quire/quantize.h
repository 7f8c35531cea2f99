#pragma once
// Writes a model's weights as integers or float8: a folder in compressed-tensors' formats, which
// quire and transformers load. vLLM reads the format, too, but was not tried.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/error.h"

namespace quire {

enum class QuantizeScheme {
  kInt8,  // pack-quantized, -128 to 127
  kInt4,  // pack-quantized, -8 to 7
  kFp8,   // float-quantized, e4m3, a scale for each output
};

struct QuantizeOptions {
  std::string model{};          // as EngineConfig::model
  std::filesystem::path out{};  // a folder to make, or an empty one
  QuantizeScheme scheme = QuantizeScheme::kInt4;
  // Of models whose layers become integers: what the output layer is rounded to, kInt8 or kInt4; of
  // models that have it tied to the embedding both are, as they are one. None: it stays.
  std::optional<QuantizeScheme> output_layer{};
  // Of integers: inputs of an output that share a scale, 32, 64 or 128. Layers whose inputs are no
  // multiple of it stay as they are.
  int64_t group_size = 32;
  // kInt4: whether all zero points are 0. Otherwise each group has its own. kInt8 has none.
  bool symmetric = false;
  // Integers: a text on which rounding errors are compensated (GPTQ); a .jsonl file holds {"text":
  // ...} in each line, each a text of its own. Empty: each number is rounded to the nearest.
  std::filesystem::path calibration{};
  int64_t max_calibration_tokens = 65536;  // of the text; >= 1
  // Whether the calibration text measures scales of keys and values, which float8 KV caches take.
  // Float8 weights need a calibration text for nothing else.
  bool kv_scales = false;
  int threads = 0;  // 0: the physical cores
  // Called now and then on the calling thread with the bytes done so far and the bytes of the whole
  // checkpoint. Returning false ends the work.
  std::function<bool(int64_t done, int64_t total)> on_progress{};
};

struct QuantizeResult {
  std::filesystem::path model;  // what was read
  std::filesystem::path out;
  std::string scheme;         // "compressed-tensors pack-quantized, 4 bits, groups of 32"
  std::string output_scheme;  // of the output layer; empty: it stays
  int64_t num_quantized = 0;
  std::vector<std::string> kept;      // linear layers that stay as they are
  std::vector<std::string> left_out;  // files and folders beside the weights that are not copied
  int64_t bytes_before = 0;           // of all tensors
  int64_t bytes_after = 0;
  double relative_error = 0;  // of the rounded weights: root of squared errors over squares
  // The same of the outputs that the layers have for the calibration text, by some of each layer's;
  // calibrated weights are further from the nearest, and outputs closer to what they were.
  std::optional<double> relative_output_error;
  int64_t calibration_tokens = 0;
};

// Nothing where on_progress ended it: `out` is then what it was before. What it holds appears when
// all of it is written. Throws Error where the model cannot be read, or has no layer that can be
// rounded; where `out` is a file or a folder that is not empty, or cannot be
// written; and for options that are not what is said above.
std::optional<QuantizeResult> quantize(const QuantizeOptions& options);

}  // namespace quire
