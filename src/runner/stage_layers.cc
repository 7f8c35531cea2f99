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

// Of stages in between: the first of them have one less where the layers do not divide.
void append_evenly(int64_t num_layers, int64_t num_stages, std::vector<int64_t>& layers) {
  const int64_t num_larger = num_stages == 0 ? 0 : num_layers % num_stages;
  for (int64_t i = 0; i < num_stages; ++i) {
    layers.push_back(num_layers / num_stages + (i >= num_stages - num_larger ? 1 : 0));
  }
}

std::vector<int64_t> balanced_beside_output(int64_t num_layers, int64_t num_others,
                                            double layer_bytes, double output_bytes) {
  int64_t last = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t n = 1; n <= num_layers - num_others; ++n) {
    const double others = static_cast<double>(ceil_div(num_layers - n, num_others)) * layer_bytes;
    const double slowest = std::max(others, static_cast<double>(n) * layer_bytes + output_bytes);
    if (slowest > least) continue;
    least = slowest;
    last = n;
  }
  std::vector<int64_t> layers;
  append_evenly(num_layers - last, num_others, layers);
  layers.push_back(last);
  return layers;
}

std::vector<int64_t> balanced_beside_both(int64_t num_layers, int64_t num_between,
                                          double layer_bytes, double output_bytes,
                                          double draft_bytes) {
  int64_t first = 1;
  int64_t last = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t n = 1; n < num_layers - num_between; ++n) {
    for (int64_t m = 1; m <= num_layers - num_between - n; ++m) {
      const int64_t between = num_layers - n - m;
      if (num_between == 0 && between > 0) continue;
      double slowest = std::max(static_cast<double>(m) * layer_bytes + draft_bytes,
                                static_cast<double>(n) * layer_bytes + output_bytes);
      if (num_between > 0) {
        slowest =
            std::max(slowest, static_cast<double>(ceil_div(between, num_between)) * layer_bytes);
      }
      if (slowest > least || (slowest == least && n == last)) continue;
      least = slowest;
      first = m;
      last = n;
    }
  }
  std::vector<int64_t> layers = {first};
  append_evenly(num_layers - first - last, num_between, layers);
  layers.push_back(last);
  return layers;
}

}  // namespace

std::vector<int64_t> balanced_stage_layers(int64_t num_layers, int num_stages, double layer_bytes,
                                           double output_bytes, double draft_bytes) {
  check(num_stages >= 1 && num_stages <= num_layers, "every stage has a layer");
  if (num_stages == 1) return {num_layers};
  return draft_bytes == 0
             ? balanced_beside_output(num_layers, num_stages - 1, layer_bytes, output_bytes)
             : balanced_beside_both(num_layers, num_stages - 2, layer_bytes, output_bytes,
                                    draft_bytes);
}

std::vector<int64_t> balanced_stage_layers(const ModelOptions& model, int num_stages,
                                           double draft_bytes) {
  const WeightBytes bytes = weight_bytes_of(model);
  const int64_t num_layers = model.config.num_hidden_layers;
  const double output_share = model.device.is_cpu() ? 1 : kOutputShareOnGpus;
  return balanced_stage_layers(num_layers, num_stages,
                               bytes.layers / static_cast<double>(num_layers),
                               output_share * bytes.output_layer, draft_bytes);
}

double bytes_of_drafts(const ModelOptions& drafter, const ModelOptions& target, int num_passes) {
  const WeightBytes bytes = weight_bytes_of(drafter);
  const bool shares_output = drafter.eagle && !drafter.eagle->has_output_table;
  const double output = shares_output ? weight_bytes_of(target).output_layer : bytes.output_layer;
  return num_passes * (bytes.layers + output);
}

}  // namespace quire
