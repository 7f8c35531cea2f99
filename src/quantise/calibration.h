#pragma once
// Runs a calibration text through a model's layers, and rounds matrices by what it shows of their
// inputs.
//
// The model runs layer by layer, in order, each layer once: begin_layer() runs the text through a
// layer and collects the Gram matrix of the inputs of each of its matrices; round() rounds a matrix
// by it (GPTQ); replace() puts the rounded matrix into the layer; end_layer() runs the text through
// the changed layer, so that the next layer sees its real inputs. All of these throw WorkEnded
// where the loops do. Float8 is rounded to the nearest, so no Gram matrices are collected for it.
//
// Memory: a layer's weights in float32, two vectors of the hidden size for each token, and for a
// matrix of k inputs k^2 numbers. Thread safety: one thread at a time, which runs the loops.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "models/model.h"
#include "quantise/calibration_step.h"
#include "quantise/endable_loops.h"
#include "quantise/gptq.h"
#include "quantise/matrix_source.h"
#include "quantise/rounded_matrix.h"

namespace quire {

// The largest magnitudes of a layer's keys and values, as they lie in the cache.
struct KvMagnitudes {
  float keys = 0;
  float values = 0;
};

class Calibration {
 public:
  // Windows have at least one token each, all of them the model's. References outlive the object.
  // notes_cache: kv_magnitudes() is asked for, which takes a look at the whole cache for each step.
  Calibration(const Checkpoint& checkpoint, const ModelConfig& config, const RoundingTarget& target,
              const CalibrationWindows& windows, bool notes_cache, const EndableLoops& loops);
  ~Calibration();

  void begin_layer(int64_t layer);
  // After begin_layer(), with notes_cache: of the text's tokens. Throws Error where one is not
  // finite.
  KvMagnitudes kv_magnitudes() const;
  // The matrix of a module of the layer, values [n, k]; of integers.
  RoundedMatrix round(const std::string& module, const std::vector<float>& values);
  // After round(): the squares of some of the module's outputs for the text, if its weights were
  // these. The same outputs each time.
  double squared_outputs(const std::string& module, const std::vector<float>& values);
  void replace(const std::string& module, const std::vector<float>& values);
  void end_layer();

 private:
  class EndObserver;
  class GramObserver;

  void make_layer(int64_t layer);
  void load_parameters();
  void load_embedding(const ParameterMap::Target& target);
  MatrixSource source_of(const ParameterMap::Target& target) const;
  void store(const ParameterMap::Target& target, int64_t first_row, const Tensor& rows);
  const ops::Weight& weight_of(const std::string& module) const;
  // Runs the text through the layer. With `keeps_states` the states become the layer's outputs.
  void run_text(LinearObserver& observer, bool keeps_states);
  void run_step(CalibrationStep& step, LinearObserver& observer, bool keeps_states);
  void note_cache();
  const InputFactor& factor_of(const std::string& module);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RoundingTarget& target_;
  std::vector<CalibrationStep> steps_;
  const EndableLoops& loops_;
  Stream stream_;
  std::unique_ptr<Communicator> comm_;
  // Of the largest step.
  int64_t most_tokens_ = 0;
  int64_t most_blocks_ = 0;

  int64_t layer_ = 0;
  std::unique_ptr<Model> model_;  // the layer
  ParameterMap parameters_;
  Buffer keys_;
  Buffer values_;
  std::vector<KvCacheView> caches_;
  const bool notes_cache_;
  KvMagnitudes largest_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<GramObserver> grams_;
  std::map<const ops::Weight*, InputFactor> factors_;
};

}  // namespace quire
