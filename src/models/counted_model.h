#pragma once
// A model that is made only to learn what it takes: its weights are counted instead of allocated,
// and its step allocates activations and computes nothing.
//
// So constructors and forward() are the only source of a plan, which costs milliseconds for a model
// of any size. Errors: as in create_model (models/families.h). Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/counting_memory.h"
#include "models/model.h"

namespace quire {

class CountedModel {
 public:
  // A part of the model as on `options.device`, which need not be there; its memory is not used.
  explicit CountedModel(const ModelOptions& options);
  CountedModel(const CountedModel&) = delete;
  CountedModel& operator=(const CountedModel&) = delete;

  // To be asked, not to be loaded or run.
  Model& model() { return *model_; }
  // Of weights and tables: the sum of Model::memory().
  size_t weight_bytes() const { return memory_.taken(); }
  // The most that forward and compute_logits take from the arena for a batch of at most max_tokens
  // tokens and max_logits rows of logits; a batch of that size takes exactly that. The input of a
  // later stage is counted, too, whether the runner allocates it in the arena or not.
  size_t activation_bytes(int64_t max_tokens, int64_t max_logits);

 private:
  CountingMemory memory_;
  ModelOptions options_;
  std::unique_ptr<Model> model_;
};

}  // namespace quire
