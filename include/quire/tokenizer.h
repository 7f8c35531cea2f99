#pragma once
// Text to token ids and back, as a model folder's tokenizer.json says.
//
// Ids and text are those of Hugging Face's `tokenizers` library: byte-level BPE (Qwen, Llama 3,
// GPT-2) and the SentencePiece-style BPE of Llama 2 and Mistral. A part of tokenizer.json that is
// not supported is refused when the file is read, never ignored.
//
// Threads: a Tokenizer is immutable once made; every method is const and may be called from several
// threads at once. Copies share one state and cost a reference count. An IncrementalDetokenizer
// belongs to one stream of ids and one thread at a time.
//
// Units: token ids are std::int32_t; text is UTF-8; offsets in messages count bytes from 0.
//
// Errors: quire::Error, saying which file and field, or which byte or id, and what was expected.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text_span.h"

namespace quire {

namespace tokenizer_internal {
struct TokenizerState;
struct TokenizerMaker;
class DecodeStream;
}  // namespace tokenizer_internal

class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json (required) and `folder`/tokenizer_config.json (optional: which
  // tokens are BOS and EOS). Throws Error when tokenizer.json is missing, malformed or
  // unsupported.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  // The same from the two files' contents; an empty `tokenizer_config_json` means there is none.
  static Tokenizer from_json(std::string_view tokenizer_json,
                             std::string_view tokenizer_config_json = {});

  // The ids of `text`. Special tokens written out in the text become their ids.
  // `add_special_tokens` adds what the post-processor says (BOS for Llama, nothing for Qwen); for a
  // rendered chat template pass false. Empty text gives only those added tokens.
  // Throws Error, naming the byte offset, where `text` is no valid UTF-8.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = true) const;

  // The same, but text that touches a span of `plain` becomes no special token. These are the parts
  // that clients wrote (ChatTemplate::render_marked()), in order and apart from each other. Added
  // tokens that are not special (<think>) are found there, too.
  std::vector<std::int32_t> encode(std::string_view text, std::span<const TextSpan> plain,
                                   bool add_special_tokens) const;

  // The text of `ids`. Bytes that make no valid UTF-8 become U+FFFD; `skip_special_tokens` leaves
  // out the tokens for which is_special() holds. An id below vocab_size() that has no token gives
  // no text. Throws Error when an id is negative or not below vocab_size().
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = false) const;

  // One more than the largest id, added tokens included. A model's own vocab_size may be larger
  // (padded).
  std::int32_t vocab_size() const;

  // The id of a token as it is spelled in tokenizer.json ("Ġhello", "<|im_end|>").
  std::optional<std::int32_t> token_to_id(std::string_view token) const;

  // The reverse; nullopt for an id that has no token, whether in range or not.
  std::optional<std::string> id_to_token(std::int32_t id) const;

  // The bytes that the id adds behind other text; "" for special tokens and ids that have no token.
  // A character may need the bytes of several tokens, as in decode().
  std::string token_bytes(std::int32_t id) const;

  // Whether the id is an added token marked special; false for ids out of range.
  bool is_special(std::int32_t id) const;

  // The BOS and EOS tokens of tokenizer_config.json: the spelling for chat templates ("" when there
  // is none) and the id (nullopt when there is none). generation_config.json may name more EOS ids.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  std::optional<std::int32_t> bos_token_id() const;
  std::optional<std::int32_t> eos_token_id() const;

 private:
  friend class IncrementalDetokenizer;
  friend struct tokenizer_internal::TokenizerMaker;
  explicit Tokenizer(std::shared_ptr<const tokenizer_internal::TokenizerState> state);
  std::shared_ptr<const tokenizer_internal::TokenizerState> state_;
};

// Turns a stream of ids into a stream of text. The pieces, put together, are decode() of all the
// ids; each piece is valid UTF-8 on its own, so bytes of an unfinished character wait for the rest.
//
//   IncrementalDetokenizer detokenizer(tokenizer);
//   for (std::int32_t id : ids) out << detokenizer.push(id);
//   out << detokenizer.finish();
class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  ~IncrementalDetokenizer();
  IncrementalDetokenizer(IncrementalDetokenizer&&) noexcept;
  IncrementalDetokenizer& operator=(IncrementalDetokenizer&&) noexcept;

  // The text that `id` completes; may be empty. Unlike decode(), an id at or above
  // Tokenizer::vocab_size() gives no text: models pad their vocabulary, so such ids can be
  // sampled. Throws Error when `id` is negative.
  std::string push(std::int32_t id);

  // What was held back, with U+FFFD for bytes that never became a character. Then the stream is
  // empty again and can be used anew.
  std::string finish();

 private:
  std::unique_ptr<tokenizer_internal::DecodeStream> stream_;
};

}  // namespace quire
