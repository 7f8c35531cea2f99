#pragma once
// What a calibration text says of the inputs of a model's layers, and the rounding that follows.
//
// The model runs layer by layer: begin_layer() runs the text through one layer and collects the
// Gram matrix of what each of its matrices is given; round() rounds a matrix by it (GPTQ);
// replace() puts the rounded one into the layer; end_layer() runs the text through the layer as it
// is now, so that the next one sees what it will be given. Layers come in their order, each once.
//
// Memory: a layer's weights in float32, two vectors of the hidden size for each token, and for a
// matrix of k inputs k^2 numbers. Thread safety: one thread at a time, which owns the pool.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "models/model.h"
#include "quantise/gptq.h"
#include "quantise/matrix_source.h"
#include "quantise/rounded_matrix.h"

namespace quire {

class Calibration {
 public:
  using Windows = std::vector<std::vector<int32_t>>;
  // Asked now and then; false: ends the work.
  using GoesOn = std::function<bool()>;

  // Each of `windows` is a text of its own, of at least one token that the model has. References
  // outlive the object.
  Calibration(const Checkpoint& checkpoint, const ModelConfig& config, const RoundingTarget& target,
              Windows windows, ThreadPool& pool);
  ~Calibration();

  // False where it was ended.
  bool begin_layer(int64_t layer, const GoesOn& goes_on);
  // The matrix of a module of the layer, values [n, k].
  RoundedMatrix round(const std::string& module, const std::vector<float>& values);
  void replace(const std::string& module, const std::vector<float>& values);
  bool end_layer(const GoesOn& goes_on);

 private:
  class GramObserver;

  void make_layer(int64_t layer);
  void load_parameters();
  void load_embedding(const ParameterMap::Target& target);
  void store(const ParameterMap::Target& target, int64_t first_row, const Tensor& rows);
  const ops::Weight& weight_of(const std::string& module) const;
  // Runs every window; with an observer the states stay what they were.
  bool run_windows(LinearObserver* observer, const GoesOn& goes_on);
  void run_window(size_t window, LinearObserver* observer);
  const InputFactor& factor_of(const std::string& module);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RoundingTarget& target_;
  Windows windows_;
  ThreadPool& pool_;
  Stream stream_;
  std::unique_ptr<Communicator> comm_;
  int64_t longest_ = 0;  // tokens of a window
  // Before the layer: hidden state and residual, [tokens, hidden size] of each window.
  std::vector<std::vector<float>> hidden_;
  std::vector<std::vector<float>> residual_;

  int64_t layer_ = 0;
  std::unique_ptr<Model> model_;  // the layer
  ParameterMap parameters_;
  Buffer keys_;
  Buffer values_;
  std::vector<KvCacheView> caches_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<GramObserver> grams_;
  std::map<const ops::Weight*, InputFactor> factors_;
};

}  // namespace quire
