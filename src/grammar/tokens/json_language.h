#pragma once
// JSON of a schema, to generate: what a JsonGrammar accepts, but for what is said below.
//
// Where other names may not come, those that an object lists are written without needless escapes.
// White space between tokens is bounded, and there is none around the whole
// text. Numbers of a bounded or otherwise restricted kind have no exponent. Besides, what
// json_completion.h says is left out.
// Thread safety: as language.h says.
#include <memory>
#include <mutex>
#include <vector>

#include "grammar/tokens/automaton_tokens.h"
#include "grammar/tokens/json_frames.h"
#include "grammar/tokens/language.h"
#include "grammar/tokens/number_lexer.h"
#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {

class JsonLanguage final : public Language {
 public:
  // `grammar` has json(). Throws Error where generation leaves out all that is accepted.
  JsonLanguage(GrammarPtr grammar, const GenerationOptions& options, Budget& budget);

  std::unique_ptr<ByteMatcher> begin() const override;
  size_t learnt_bytes() const override;

  const JsonGrammar& grammar() const { return *grammar_->json(); }
  const GenerationOptions& options() const { return options_; }
  const JsonCompletion& completion() const { return completion_; }
  const JsonFrames& frames() const { return frames_; }

  // What matchers learn of the language: several share it, under its lock.
  struct Learnt {
    std::recursive_mutex mutex;
    StringLexer strings;
    NumberLexer numbers;
    AutomatonTokensStore automaton_tokens;

    // Thread safety: any thread.
    size_t bytes() const { return strings.bytes() + numbers.bytes() + automaton_tokens.bytes(); }
  };
  // For a new matcher: one that the fewest others have, and of these the one that has been there
  // longest. So matchers of one thread share one, and those of several streams seldom wait for each
  // other. What nobody else has is dropped, and all together remember no more than one did alone.
  // One that has learnt too much is left to those that have it.
  std::shared_ptr<Learnt> share_learnt() const;

 private:
  GrammarPtr grammar_;
  GenerationOptions options_;
  JsonCompletion completion_;
  JsonFrames frames_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<Learnt>> learnt_;
};

}  // namespace quire::grammar
