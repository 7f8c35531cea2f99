#include "quire/tokenizer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "quire/error.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/utf8.h"

namespace quire {
namespace tokenizer_internal {

// An IncrementalDetokenizer's insides.
class DecodeStream {
 public:
  DecodeStream(std::shared_ptr<const TokenizerState> state, bool skip_special_tokens)
      : state_(std::move(state)),
        chain_(state_->decoder),
        skip_special_tokens_(skip_special_tokens) {}

  void push(std::int32_t id, std::string& out) {
    if (const auto token = state_->decoded_token(id, skip_special_tokens_)) {
      chain_.push(*token, out);
    }
  }
  void finish(std::string& out) { chain_.finish(out); }

 private:
  std::shared_ptr<const TokenizerState> state_;
  DecoderChain chain_;
  bool skip_special_tokens_;
};

}  // namespace tokenizer_internal

namespace {

using tokenizer_internal::TokenizerState;
using tokenizer_internal::Vocabulary;

// The largest tokenizer.json in use has about 35 MB.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
// Positions in a word are 32-bit.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

MappedFile map_file(const std::filesystem::path& path) {
  MappedFile file = MappedFile::open(path);
  if (file.bytes().size() > kMaxFileBytes) {
    throw Error(fmt::format("{} has {} bytes; at most {} are supported.", path.string(),
                            file.bytes().size(), kMaxFileBytes));
  }
  return file;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::optional<std::int32_t> optional_id(std::int32_t id) {
  return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const TokenizerState> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    throw Error(
        fmt::format("{} has no tokenizer.json; expected a model folder as Hugging Face "
                    "publishes it, with a tokenizer.",
                    folder.string()));
  }
  const std::filesystem::path config = folder / "tokenizer_config.json";
  try {
    const MappedFile text = map_file(file);
    std::optional<MappedFile> config_text;
    if (std::filesystem::exists(config)) config_text = map_file(config);
    return from_json(text_of(text), config_text ? text_of(*config_text) : std::string_view());
  } catch (const Error& error) {
    throw Error(fmt::format("Cannot use the tokenizer in {}: {}", folder.string(), error.what()));
  }
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json,
                               std::string_view tokenizer_config_json) {
  return Tokenizer(TokenizerState::parse(tokenizer_json, tokenizer_config_json));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode(text, {}, add_special_tokens);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, std::span<const TextSpan> plain,
                                            bool add_special_tokens) const {
  if (text.size() > kMaxTextBytes) {
    throw Error(fmt::format("Cannot encode a text of {} bytes: at most {} are supported.",
                            text.size(), kMaxTextBytes));
  }
  if (const auto offset = tokenizer_internal::find_invalid_utf8(text)) {
    throw Error(fmt::format("Cannot encode text: the byte 0x{:02X} at offset {} is no valid UTF-8.",
                            static_cast<unsigned char>(text[*offset]), *offset));
  }
  return state_->post_processor.run(state_->encode(text, plain), add_special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  tokenizer_internal::DecodeStream stream(state_, skip_special_tokens);
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      throw Error(
          fmt::format("Cannot decode the token id {} at position {}: ids of this tokenizer "
                      "lie in 0..{}.",
                      ids[i], i, vocab_size() - 1));
    }
    stream.push(ids[i], out);
  }
  stream.finish(out);
  return out;
}

std::int32_t Tokenizer::vocab_size() const {
  return state_->end_id();
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return optional_id(state_->find(token));
}

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  if (const auto* token = state_->added_tokens.find(id)) return token->content;
  const Vocabulary& vocabulary = state_->bpe.vocabulary();
  if (!vocabulary.has(id)) return std::nullopt;
  return std::string(vocabulary.text(id));
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  const auto text = state_->decoded_token(id, true);
  return text ? state_->decoder.bytes_within(*text) : std::string();
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto* token = state_->added_tokens.find(id);
  return token != nullptr && token->special;
}

const std::string& Tokenizer::bos_token() const {
  return state_->bos_token;
}
const std::string& Tokenizer::eos_token() const {
  return state_->eos_token;
}

std::optional<std::int32_t> Tokenizer::bos_token_id() const {
  return optional_id(state_->find(state_->bos_token));
}
std::optional<std::int32_t> Tokenizer::eos_token_id() const {
  return optional_id(state_->find(state_->eos_token));
}

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : stream_(std::make_unique<tokenizer_internal::DecodeStream>(tokenizer.state_,
                                                                 skip_special_tokens)) {}
IncrementalDetokenizer::~IncrementalDetokenizer() = default;
IncrementalDetokenizer::IncrementalDetokenizer(IncrementalDetokenizer&&) noexcept = default;
IncrementalDetokenizer& IncrementalDetokenizer::operator=(IncrementalDetokenizer&&) noexcept =
    default;

std::string IncrementalDetokenizer::push(std::int32_t id) {
  if (id < 0) {
    throw Error(fmt::format("Cannot decode the token id {}: ids are not negative.", id));
  }
  std::string out;
  stream_->push(id, out);
  return out;
}

std::string IncrementalDetokenizer::finish() {
  std::string out;
  stream_->finish(out);
  return out;
}

}  // namespace quire
