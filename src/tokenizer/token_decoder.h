#pragma once
// Turns token texts back into text: the decoder of tokenizer.json, as a stream.
//
// Decoder (immutable; any thread) is the configuration; DecoderChain is one run of it, fed one
// token at a time. Both decode() and the incremental detokeniser use the chain, so they cannot
// differ. A step holds back what later tokens may still change: bytes of an unfinished character, a
// run of byte tokens (which is one text or, if any of it is wrong, all U+FFFD). Errors:
// quire::Error, naming the field that is not supported.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"

namespace quire::tokenizer_internal {

struct ByteLevelStep {};
struct ReplaceStep {
  Regex pattern;
  std::string content;
};
struct ByteFallbackStep {};
struct FuseStep {};
struct StripStep {
  char32_t content;
  std::size_t start;  // at most this many at the start of each token go
  std::size_t stop;   // at most this many at its end
};
struct MetaspaceStep {
  char32_t replacement;
  bool drop_in_first;  // in the first token it becomes nothing, in others a space
};
// Stands in for a missing decoder: tokens with spaces between them.
struct JoinStep {};

using DecoderStep = std::variant<ByteLevelStep, ReplaceStep, ByteFallbackStep, FuseStep, StripStep,
                                 MetaspaceStep, JoinStep>;

class Decoder {
 public:
  // `field` is the decoder, nullopt when there is none.
  explicit Decoder(const std::optional<JsonField>& field);

  const std::vector<DecoderStep>& steps() const { return steps_; }
  // The bytes that a token adds within a text, even if they are only a part of a character.
  std::string bytes_within(std::string_view token) const;

 private:
  void add_steps(const JsonField& field);

  std::vector<DecoderStep> steps_;
};

// Takes tokens one by one. Behind a step that fuses tokens, a "token" is a part of the single fused
// token.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void token(std::string_view text) = 0;
  // There are no more tokens.
  virtual void end() = 0;
};

// One run of a decoder. Requires the Decoder to outlive it. One thread at a time.
class DecoderChain {
 public:
  explicit DecoderChain(const Decoder& decoder);

  // Appends the text that this token completes to `out`.
  void push(std::string_view token, std::string& out);
  // Appends what was held back; then the chain is as new.
  void finish(std::string& out);

 private:
  class Collector;
  void build();

  const Decoder& decoder_;
  std::vector<std::unique_ptr<TokenSink>> sinks_;  // the last step first: each feeds the one before
  Collector* collector_ = nullptr;
};

}  // namespace quire::tokenizer_internal
