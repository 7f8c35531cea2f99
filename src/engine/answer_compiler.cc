#include "engine/answer_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/tokens/tag_language.h"
#include "quire/error.h"

namespace quire {
namespace {

void add_part(std::string& key, const std::string& part) {
  key += std::to_string(part.size()) + ':' + part;
}

// Equal for equal constraints, and for no others.
std::string cache_key(const StructuredOutput& output) {
  std::string key = std::to_string(static_cast<int>(output.kind)) + ';';
  add_part(key, output.text);
  add_part(key, output.begins_after);
  add_part(key, output.separator);
  key += fmt::format("{};{};{};{};{};", output.min_tags, output.max_tags, output.choices.size(),
                     output.triggers.size(), output.disable_any_whitespace);
  for (const std::string& choice : output.choices) add_part(key, choice);
  for (const std::string& trigger : output.triggers) add_part(key, trigger);
  for (const StructuralTag& tag : output.tags) {
    add_part(key, tag.begin);
    add_part(key, tag.json_schema);
    add_part(key, tag.end);
  }
  return key;
}

// For those who take as long as the limits allow.
constexpr AnswerCompiler::Clock::time_point kNoEnd = AnswerCompiler::Clock::time_point::max();

// Of several parts together.
class SharedLimits {
 public:
  SharedLimits(const grammar::CompileLimits& limits, AnswerCompiler::Clock::time_point end)
      : whole_(limits), end_(std::min(AnswerCompiler::Clock::now() + limits.time, end)) {}

  // What is left of them for the next part.
  grammar::CompileLimits left() {
    grammar::CompileLimits limits = whole_;
    limits.end = end_;
    limits.memory_bytes -= std::min(bytes_, limits.memory_bytes);
    limits.result_bytes = &bytes_;
    return limits;
  }
  size_t bytes() const { return bytes_; }

 private:
  grammar::CompileLimits whole_;
  std::chrono::steady_clock::time_point end_;
  size_t bytes_ = 0;
};

grammar::GrammarPtr compile_grammar(const StructuredOutput& output,
                                    const grammar::CompileLimits& limits) {
  switch (output.kind) {
    case StructuredOutput::Kind::kJsonSchema:
      return grammar::compile_json_schema(output.text, limits);
    case StructuredOutput::Kind::kJsonObject:
      return grammar::compile_json_schema(R"({"type": "object"})", limits);
    case StructuredOutput::Kind::kRegex:
      return grammar::compile_regex(output.text, limits);
    case StructuredOutput::Kind::kGrammar:
      return grammar::compile_gbnf(output.text, limits);
    case StructuredOutput::Kind::kChoice:
      return grammar::compile_choice(output.choices, limits);
    case StructuredOutput::Kind::kTags:
      break;
  }
  check(false, "a constraint of one grammar has its kind");
  return nullptr;
}

grammar::LanguagePtr compile_tags(const StructuredOutput& output,
                                  const grammar::GenerationOptions& generation,
                                  SharedLimits& limits) {
  grammar::TagOptions options{.triggers = output.triggers,
                              .separator = output.separator,
                              .min_tags = output.min_tags,
                              .max_tags = output.max_tags};
  for (const StructuralTag& tag : output.tags) {
    auto arguments = grammar::compile_json_schema(tag.json_schema, limits.left());
    options.tags.push_back(
        {.begin = tag.begin,
         .inner = grammar::make_language(std::move(arguments), generation, limits.left()),
         .end = tag.end});
  }
  return grammar::make_tags(std::move(options), limits.left());
}

void check_marker(const std::string& marker) {
  if (marker.size() <= AnswerStart::kMaxBytes) return;
  throw Error(fmt::format("begins_after has {} bytes; expected at most {}", marker.size(),
                          AnswerStart::kMaxBytes));
}

// The special token that is spelled like the text.
std::optional<int32_t> special_token(const Tokenizer& tokenizer, const std::string& text) {
  const std::optional<int32_t> id = tokenizer.token_to_id(text);
  return id && tokenizer.is_special(*id) ? id : std::nullopt;
}

// Holds one of a semaphore's places.
template <typename Semaphore>
class Place {
 public:
  // Where none is free until `end`, the work finds its time over.
  Place(Semaphore& places, AnswerCompiler::Clock::time_point end) : places_(places) {
    if (end == kNoEnd) {
      places_.acquire();
    } else {
      is_taken_ = places_.try_acquire_until(end);
    }
  }
  ~Place() {
    if (is_taken_) places_.release();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  Semaphore& places_;
  bool is_taken_ = true;
};

}  // namespace

AnswerCompiler::AnswerCompiler(std::optional<Tokenizer> tokenizer, AnswerCompilerOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)), failed_(options_.failed) {}

grammar::TokenTriePtr AnswerCompiler::trie() {
  std::call_once(trie_made_, [this] {
    const int64_t num_tokens = std::min<int64_t>(options_.vocab_size, tokenizer_->vocab_size());
    std::vector<std::string> tokens(static_cast<size_t>(options_.vocab_size));
    for (int64_t id = 0; id < num_tokens; ++id) {
      tokens[static_cast<size_t>(id)] = tokenizer_->token_bytes(static_cast<int32_t>(id));
    }
    for (const int32_t id : options_.eos_token_ids) tokens[static_cast<size_t>(id)].clear();
    trie_ = std::make_shared<const grammar::TokenTrie>(std::move(tokens));
    trie_->string_tokens(grammar::TokenTrie::kRoot);  // which most schemas need
  });
  return trie_;
}

AnswerLanguagePtr AnswerCompiler::compile_now(const StructuredOutput& output, size_t& bytes,
                                              Clock::time_point end) {
  const Place place(end == kNoEnd ? places_ : hasty_places_, end);
  try {
    return compile_language(output, bytes, end);
  } catch (const Error& error) {
    throw Error(fmt::format("structured_output: {}.", error.what()));
  }
}

AnswerLanguagePtr AnswerCompiler::compile_language(const StructuredOutput& output, size_t& bytes,
                                                   Clock::time_point end) {
  auto result = std::make_shared<AnswerLanguage>();
  check_marker(output.begins_after);
  SharedLimits limits(options_.limits, end);
  grammar::GenerationOptions generation = options_.generation;
  if (output.disable_any_whitespace) generation.white_space = grammar::parse_white_space("none");
  if (output.kind == StructuredOutput::Kind::kTags) {
    result->language = compile_tags(output, generation, limits);
  } else {
    auto texts = compile_grammar(output, limits.left());
    result->language = grammar::make_language(std::move(texts), generation, limits.left());
  }
  bytes += limits.bytes();
  result->trie = trie();
  result->tokenizer = tokenizer_;
  if (!output.begins_after.empty()) {
    result->start.emplace(output.begins_after, special_token(*tokenizer_, output.begins_after),
                          result->trie);
  }
  AnswerConstraint whole(result);
  result->tokens_to_end = whole.tokens_to_end();
  if (grammar::Constraint(result->language, result->trie).must_end()) {
    throw Error("only the empty text fits, and an answer has a token at least");
  }
  if (result->tokens_to_end == SIZE_MAX) {
    throw Error("the model has no tokens for the bytes of a text that fits");
  }
  return result;
}

AnswerLanguagePtr AnswerCompiler::take(Known& known, const std::string& key) {
  AnswerLanguagePtr language = known.language.lock();
  if (!language) return nullptr;
  if (known.kept) {
    kept_.splice(kept_.begin(), kept_, *known.kept);
    forget_too_much();
  } else {
    keep(known, key, language);
  }
  return language;
}

void AnswerCompiler::keep(Known& known, const std::string& key, AnswerLanguagePtr language) {
  known.language = language;
  kept_.push_front({key, std::move(language), known.bytes});
  known.kept = kept_.begin();
  forget_too_much();
}

void AnswerCompiler::forget_too_much() {
  // Answers have taught them more since the last time.
  kept_bytes_ = 0;
  for (Kept& kept : kept_) {
    kept.bytes = kept.compiled_bytes + kept.language->language->learnt_bytes();
    kept_bytes_ += kept.bytes;
  }
  while (kept_.size() > options_.max_kept ||
         (kept_bytes_ > options_.max_kept_bytes && !kept_.empty())) {
    kept_bytes_ -= kept_.back().bytes;
    known_.at(kept_.back().key).kept.reset();
    kept_.pop_back();
  }
}

void AnswerCompiler::drop_unused() {
  if (known_.size() <= 2 * options_.max_kept) return;
  std::erase_if(known_, [](const auto& entry) {
    const Known& known = entry.second;
    return !known.kept && !known.compiling.valid() && known.language.expired();
  });
}

AnswerLanguagePtr AnswerCompiler::find(const std::string& key) {
  const auto known = known_.find(key);
  if (known != known_.end()) {
    if (AnswerLanguagePtr language = take(known->second, key)) return language;
  }
  const auto error = failed_.find(key, FailedAnswers::Clock::now());
  if (error) throw Error(*error);
  return nullptr;
}

AnswerLanguagePtr AnswerCompiler::find(const StructuredOutput& output) {
  check_tokenizer();
  const std::string key = cache_key(output);
  const std::lock_guard lock(mutex_);
  return find(key);
}

void AnswerCompiler::check_tokenizer() const {
  if (tokenizer_) return;
  throw Error("structured_output needs a tokenizer, and this engine has none.");
}

AnswerLanguagePtr AnswerCompiler::compile(const StructuredOutput& output) {
  while (true) {
    // Null where it was waiting for somebody who had no more time.
    if (AnswerLanguagePtr language = compile_by(output, kNoEnd)) return language;
  }
}

AnswerLanguagePtr AnswerCompiler::compile_by(const StructuredOutput& output,
                                             Clock::time_point end) {
  check_tokenizer();
  const std::string key = cache_key(output);
  std::promise<AnswerLanguagePtr> promise;
  std::shared_future<AnswerLanguagePtr> result;
  bool is_mine = false;
  {
    const std::lock_guard lock(mutex_);
    if (AnswerLanguagePtr language = find(key)) return language;
    drop_unused();
    Known& known = known_[key];
    is_mine = !known.compiling.valid();
    if (is_mine) known.compiling = promise.get_future().share();
    result = known.compiling;
  }
  if (is_mine) {
    compile_for_all(output, key, promise, end);
  } else if (end != kNoEnd && result.wait_until(end) != std::future_status::ready) {
    return nullptr;
  }
  return result.get();
}

void AnswerCompiler::compile_for_all(const StructuredOutput& output, const std::string& key,
                                     std::promise<AnswerLanguagePtr>& promise,
                                     Clock::time_point end) {
  try {
    size_t bytes = key.size();
    AnswerLanguagePtr language = compile_now(output, bytes, end);
    const std::lock_guard lock(mutex_);
    ++num_compiled_;
    Known& known = known_.at(key);
    known.compiling = {};
    known.bytes = bytes;
    keep(known, key, language);
    promise.set_value(std::move(language));
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    known_.erase(key);
    // Whatever the error is: those who have time find it again.
    if (Clock::now() >= end) return promise.set_value(nullptr);
    ++num_failed_;
    promise.set_exception(std::current_exception());
    remember_failure(key, error);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    known_.erase(key);
    promise.set_exception(std::current_exception());
  }
}

void AnswerCompiler::remember_failure(const std::string& key, const Error& error) {
  try {
    failed_.add(key, error.what(), FailedAnswers::Clock::now());
  } catch (const std::bad_alloc&) {
    return;  // asking again costs a compilation, which is no reason to fail otherwise
  }
}

int64_t AnswerCompiler::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

int64_t AnswerCompiler::num_failed() const {
  const std::lock_guard lock(mutex_);
  return num_failed_;
}

}  // namespace quire
