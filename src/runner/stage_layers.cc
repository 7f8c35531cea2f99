#include "runner/stage_layers.h"

#include <algorithm>
#include <limits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "runner/model_support.h"

namespace quire {
namespace {

// One H200 takes about as long for the output layer of Qwen3-8B and 128 sequences as for one layer
// of the model, which is 0.31 times as large; prompts do not use the output layer.
constexpr double kOutputShareOnGpus = 0.31;

}  // namespace

std::vector<int64_t> balanced_stage_layers(int64_t num_layers, int num_stages, double layer_bytes,
                                           double output_bytes) {
  check(num_stages >= 1 && num_stages <= num_layers, "every stage has a layer");
  if (num_stages == 1) return {num_layers};
  const int64_t num_others = num_stages - 1;
  int64_t last = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t n = 1; n <= num_layers - num_others; ++n) {
    const double others = static_cast<double>(ceil_div(num_layers - n, num_others)) * layer_bytes;
    const double slowest = std::max(others, static_cast<double>(n) * layer_bytes + output_bytes);
    if (slowest > least) continue;
    least = slowest;
    last = n;
  }
  const int64_t rest = num_layers - last;
  std::vector<int64_t> layers(static_cast<size_t>(num_others), rest / num_others);
  for (int64_t i = 0; i < rest % num_others; ++i)
    ++layers[layers.size() - 1 - static_cast<size_t>(i)];
  layers.push_back(last);
  return layers;
}

std::vector<int64_t> balanced_stage_layers(const ModelOptions& model, int num_stages) {
  const WeightBytes bytes = weight_bytes_of(model);
  const int64_t num_layers = model.config.num_hidden_layers;
  const double output_share = model.device.is_cpu() ? 1 : kOutputShareOnGpus;
  return balanced_stage_layers(num_layers, num_stages,
                               bytes.layers / static_cast<double>(num_layers),
                               output_share * bytes.output_layer);
}

}  // namespace quire
