#pragma once
// What copies of a Tokenizer share. Immutable except for the pool of scratch memory.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text_span.h"
#include "quire/tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"

namespace quire::tokenizer_internal {

struct TokenizerFile;
struct TokenizerConfig;

// Scratch memory with warm word caches, lent to one encode() at a time: no lock is held while
// encoding, and there are never more of them than there were encodes at once.
class ScratchPool {
 public:
  std::unique_ptr<BpeScratch> acquire();
  void release(std::unique_ptr<BpeScratch> scratch) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> idle_;
};

struct TokenizerState {
  TokenizerState(TokenizerFile file, const TokenizerConfig& config);
  // From the texts of tokenizer.json and tokenizer_config.json, which is empty where there is no
  // such file.
  static std::shared_ptr<const TokenizerState> parse(std::string_view tokenizer_json,
                                                     std::string_view config_json);

  // The ids of a text, without those that the post-processor adds. Requires valid UTF-8. Text that
  // touches a span of `plain` becomes no special token.
  std::vector<std::int32_t> encode(std::string_view text, std::span<const TextSpan> plain) const;

  // The text that the decoder gets for an id; nullopt where it gets none: the id has no token, or
  // the token is special and `skip_special_tokens` holds.
  std::optional<std::string_view> decoded_token(std::int32_t id, bool skip_special_tokens) const;

  std::int32_t end_id() const;
  std::int32_t find(std::string_view token) const;

  CharClasses classes;
  Normalizer normalizer;
  AddedTokens added_tokens;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  std::string bos_token;
  std::string eos_token;

 private:
  class Encoder;

  // Whether BPE can make a special token by itself, because its text is in the model's vocabulary,
  // too.
  bool is_special_word(std::int32_t id) const;

  // The ids of those tokens lie in [begin, end).
  std::int32_t special_words_begin_ = 0;
  std::int32_t special_words_end_ = 0;
  mutable ScratchPool scratch_pool_;
};

// Makes a Tokenizer of a state that did not come from a tokenizer.json.
struct TokenizerMaker {
  static Tokenizer make(std::shared_ptr<const TokenizerState> state);
};

}  // namespace quire::tokenizer_internal
