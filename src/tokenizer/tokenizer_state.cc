#include "tokenizer/tokenizer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "quire/error.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

std::optional<JsonField> optional_field(const nlohmann::json& value, std::string_view name) {
  if (value.is_null()) return std::nullopt;
  return JsonField(value, fmt::format("tokenizer.json: {}", name));
}

}  // namespace

std::unique_ptr<BpeScratch> ScratchPool::acquire() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<BpeScratch>();
}

void ScratchPool::release(std::unique_ptr<BpeScratch> scratch) noexcept {
  scratch->trim();
  try {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  } catch (const std::bad_alloc&) {
    return;  // the next encode() makes one
  }
}

// One encode(): finds added tokens, normalises what lies between, cuts it, and runs BPE on the
// words.
class TokenizerState::Encoder final : public PieceSink {
 public:
  Encoder(const TokenizerState& state, std::span<const TextSpan> plain)
      : state_(state), plain_(plain), scratch_(state.scratch_pool_.acquire()) {}
  ~Encoder() override { state_.scratch_pool_.release(std::move(scratch_)); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  std::vector<std::int32_t> run(std::string_view text) {
    out_.room_for(text.size() / 3 + WordCache::kMaxIds);
    for (const TextSegment& segment : state_.added_tokens.split_raw(text, plain_)) {
      if (segment.id != TextSegment::kText) {
        out_.append(segment.id);
      } else {
        encode_between(text, segment);
      }
    }
    return out_.take();
  }

  void take(const Piece& word) override {
    if (may_make_special_) {
      state_.bpe.encode(word.text, word.readable_end, *scratch_, out_);
    } else {
      encode_plain(word.text, word.readable_end);
    }
  }

 private:
  // A word that would become a special token is cut until it does not.
  void encode_plain(std::string_view word, const char* readable_end) {
    const std::size_t start = out_.size();
    state_.bpe.encode(word, readable_end, *scratch_, out_);
    const std::span<const std::int32_t> ids = out_.since(start);
    if (std::none_of(ids.begin(), ids.end(),
                     [&](std::int32_t id) { return state_.is_special_word(id); })) {
      return;
    }
    std::size_t cut = std::max<std::size_t>(word.size() / 2, 1);
    while (cut < word.size() && is_continuation(word[cut])) ++cut;
    if (cut == word.size()) cut = decode_at(word, 0).size;
    if (cut == word.size()) return;  // one character
    out_.truncate(start);
    encode_plain(word.substr(0, cut), readable_end);
    encode_plain(word.substr(cut), readable_end);
  }

  static bool is_continuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
  }

  void encode_between(std::string_view whole, const TextSegment& between) {
    const std::string_view raw = whole.substr(between.start, between.end - between.start);
    const bool at_start = between.start == 0;
    std::string storage;
    const std::string_view text = state_.normalizer.run(raw, storage);
    may_make_special_ = plain_within(between).empty();
    const bool take_special = may_make_special_ || !state_.added_tokens.has_special_normalized() ||
                              specials_in(text) == specials_around_plain(whole, between);
    for (const TextSegment& segment : state_.added_tokens.split_normalized(text, take_special)) {
      if (segment.id != TextSegment::kText) {
        out_.append(segment.id);
      } else if (segment.start != segment.end) {
        const Piece piece{text.substr(segment.start, segment.end - segment.start),
                          text.data() + text.size(), at_start && segment.start == 0};
        state_.pre_tokenizer.run(piece, *this);
      }
    }
  }

  // The spans of plain_ that share a byte with `segment`.
  std::span<const TextSpan> plain_within(const TextSegment& segment) const {
    const auto first =
        std::partition_point(plain_.begin(), plain_.end(),
                             [&](const TextSpan& span) { return span.end <= segment.start; });
    const auto last = std::partition_point(
        first, plain_.end(), [&](const TextSpan& span) { return span.begin < segment.end; });
    return {first, last};
  }

  std::vector<std::int32_t> specials_in(std::string_view normalized) const {
    std::vector<std::int32_t> ids;
    for (const TextSegment& segment : state_.added_tokens.split_normalized(normalized, true)) {
      if (state_.added_tokens.is_special(segment.id)) ids.push_back(segment.id);
    }
    return ids;
  }

  // The special tokens that a segment would have without what is plain in it. A normalised text
  // does not say where its bytes came from; where it has other special tokens than these, plain
  // text made them, and none is taken.
  std::vector<std::int32_t> specials_around_plain(std::string_view whole,
                                                  const TextSegment& segment) const {
    std::vector<std::int32_t> ids;
    std::size_t at = segment.start;
    const auto add_up_to = [&](std::size_t end) {
      if (end <= at) return;
      std::string storage;
      const auto found = specials_in(state_.normalizer.run(whole.substr(at, end - at), storage));
      ids.insert(ids.end(), found.begin(), found.end());
    };
    for (const TextSpan& span : plain_within(segment)) {
      add_up_to(span.begin);
      at = span.end;
    }
    add_up_to(segment.end);
    return ids;
  }

  const TokenizerState& state_;
  const std::span<const TextSpan> plain_;
  bool may_make_special_ = true;  // no byte of the segment that is encoded is plain
  std::unique_ptr<BpeScratch> scratch_;
  IdBuffer out_;
};

TokenizerState::TokenizerState(TokenizerFile file, const TokenizerConfig& config)
    : normalizer(optional_field(file.normalizer, "normalizer"), classes),
      added_tokens(file.added_tokens, normalizer, classes),
      bpe(std::move(file.vocabulary), std::move(file.merges), file.options),
      pre_tokenizer(optional_field(file.pre_tokenizer, "pre_tokenizer"), classes,
                    bpe.has_all_bytes()),
      post_processor(optional_field(file.post_processor, "post_processor")),
      decoder(optional_field(file.decoder, "decoder")),
      bos_token(config.bos_token),
      eos_token(config.eos_token) {
  if (pre_tokenizer.emits_bytes()) bpe.use_bytes();
  for (const std::int32_t id : added_tokens.special_ids()) {
    if (!bpe.vocabulary().has(id)) continue;
    if (special_words_end_ == 0) special_words_begin_ = id;
    special_words_end_ = id + 1;
  }
  if (!config.add_bos_token && !config.add_eos_token) return;
  const auto ids_of = [&](const std::optional<bool>& wanted, const std::string& token) {
    std::vector<std::int32_t> ids;
    if (wanted.value_or(false) && find(token) != Vocabulary::kNone) ids.push_back(find(token));
    return ids;
  };
  post_processor = PostProcessor(ids_of(config.add_bos_token, bos_token),
                                 ids_of(config.add_eos_token, eos_token));
}

std::shared_ptr<const TokenizerState> TokenizerState::parse(std::string_view tokenizer_json,
                                                            std::string_view config_json) {
  const TokenizerConfig config = read_tokenizer_config(config_json);
  return std::make_shared<const TokenizerState>(read_tokenizer_file(tokenizer_json), config);
}

std::vector<std::int32_t> TokenizerState::encode(std::string_view text,
                                                 std::span<const TextSpan> plain) const {
  return Encoder(*this, plain).run(text);
}

bool TokenizerState::is_special_word(std::int32_t id) const {
  return id >= special_words_begin_ && id < special_words_end_ && added_tokens.is_special(id);
}

std::optional<std::string_view> TokenizerState::decoded_token(std::int32_t id,
                                                              bool skip_special_tokens) const {
  std::string_view text;
  if (const AddedToken* token = added_tokens.find(id)) {
    if (skip_special_tokens && token->special) return std::nullopt;
    text = added_tokens.decoded_text(*token);
  } else if (bpe.vocabulary().has(id)) {
    text = bpe.vocabulary().text(id);
  } else {
    return std::nullopt;
  }
  if (skip_special_tokens && added_tokens.is_special_text(text)) return std::nullopt;
  return text;
}

std::int32_t TokenizerState::end_id() const {
  return std::max(bpe.vocabulary().end_id(), added_tokens.end_id());
}

std::int32_t TokenizerState::find(std::string_view token) const {
  const std::int32_t added = added_tokens.find(token);
  return added != Vocabulary::kNone ? added : bpe.vocabulary().find(token);
}

}  // namespace quire::tokenizer_internal
