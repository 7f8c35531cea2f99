#pragma once
// Compiles what answers have to be (StructuredOutput), once for all requests that ask for it.
//
// compile() works on the caller's thread: callers are those that may wait, never the step loop.
// Callers with the same constraint wait for one compilation; a few different ones are compiled at
// a time, each within the limits of grammar::CompileLimits. compile_by() gives up on what takes
// long, and waits for no other constraint that does. The newest are kept, by number and by
// what they take, and all that somebody holds; those that cannot be compiled are remembered with
// their errors. The tree of the vocabulary is made with the first.
// Thread safety: any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/answer_constraint.h"
#include "engine/failed_answers.h"
#include "grammar/tokens/language.h"
#include "quire/error.h"
#include "quire/structured_output.h"
#include "quire/tokenizer.h"

namespace quire {

struct AnswerCompilerOptions {
  int64_t vocab_size = 0;              // the model's
  std::vector<int32_t> eos_token_ids;  // are no text
  grammar::CompileLimits limits;       // of each constraint
  grammar::GenerationOptions generation;
  size_t max_kept = 256;
  size_t max_kept_bytes = size_t{512} << 20;
  FailedAnswerLimits failed{};
};

class AnswerCompiler {
 public:
  using Clock = std::chrono::steady_clock;

  // `tokenizer`: none where the engine has none, and then nothing can be compiled.
  AnswerCompiler(std::optional<Tokenizer> tokenizer, AnswerCompilerOptions options);

  // Throws Error for what is no constraint, cannot be enforced, passes the limits or has no text
  // that the model's tokens make.
  AnswerLanguagePtr compile(const StructuredOutput& output);
  // The same, but null where that takes beyond `end`, which is not remembered.
  AnswerLanguagePtr compile_by(const StructuredOutput& output, Clock::time_point end);
  // The same without working or waiting: null for a constraint that is not compiled yet. Throws
  // what compile() threw for one that is remembered.
  AnswerLanguagePtr find(const StructuredOutput& output);

  // How many constraints were compiled so far, and how often compiling one has failed.
  int64_t num_compiled() const;
  int64_t num_failed() const;

 private:
  struct Kept {
    std::string key;
    AnswerLanguagePtr language;
    size_t compiled_bytes = 0;
    size_t bytes = 0;  // with what its matchers have learnt
  };
  struct Known {
    std::weak_ptr<const AnswerLanguage> language;
    size_t bytes = 0;
    // Valid while it is compiled. Null where the one who compiled it had no more time.
    std::shared_future<AnswerLanguagePtr> compiling;
    std::optional<std::list<Kept>::iterator> kept;  // in kept_
  };

  void check_tokenizer() const;
  grammar::TokenTriePtr trie();
  // Compiles for those who wait for `promise`.
  void compile_for_all(const StructuredOutput& output, const std::string& key,
                       std::promise<AnswerLanguagePtr>& promise, Clock::time_point end);
  // When there is a place. Adds what it takes to `bytes`.
  AnswerLanguagePtr compile_now(const StructuredOutput& output, size_t& bytes,
                                Clock::time_point end);
  AnswerLanguagePtr compile_language(const StructuredOutput& output, size_t& bytes,
                                     Clock::time_point end);
  // With mutex_ held:
  AnswerLanguagePtr find(const std::string& key);
  AnswerLanguagePtr take(Known& known, const std::string& key);
  void keep(Known& known, const std::string& key, AnswerLanguagePtr language);
  // The oldest, while there are too many or too large ones.
  void forget_too_much();
  void remember_failure(const std::string& key, const Error& error);
  void drop_unused();

  std::optional<Tokenizer> tokenizer_;
  AnswerCompilerOptions options_;
  std::once_flag trie_made_;
  grammar::TokenTriePtr trie_;
  static constexpr int kAtATime = 4;
  std::counting_semaphore<kAtATime> places_{kAtATime};
  std::counting_semaphore<kAtATime> hasty_places_{kAtATime};  // of compile_by()
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Known> known_;
  std::list<Kept> kept_;  // the newest used first
  size_t kept_bytes_ = 0;
  FailedAnswers failed_;
  int64_t num_compiled_ = 0;
  int64_t num_failed_ = 0;
};

}  // namespace quire
