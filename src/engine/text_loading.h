#pragma once
// A model's tokenizer and chat template, read by a thread of their own while the weights load: a
// tokenizer of 150,000 tokens takes a tenth of a second, about as long as the weights of a small
// model.
//
// Thread safety: one thread owns a TextLoading; any thread may call check() meanwhile.
#include <functional>
#include <future>
#include <optional>

#include "quire/chat_template.h"
#include "quire/tokenizer.h"

namespace quire {

// None where the model has none, or none are wanted.
struct ModelTexts {
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
};

class TextLoading {
 public:
  // Starts `load`. What it refers to outlives the object, which waits for it at its end.
  explicit TextLoading(std::function<ModelTexts()> load);

  // Throws what `load` has thrown, if it has by now. Called while weights load, it ends that for a
  // model whose tokenizer is of no use.
  void check() const;

  // Returns when `load` has ended, however it did.
  void finish() const { result_.wait(); }

  // Waits for `load`. Throws what it threw.
  ModelTexts wait() const { return result_.get(); }

 private:
  std::shared_future<ModelTexts> result_;
};

}  // namespace quire
