#include "tokenizer/tokenizer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "quire/error.h"

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

void ScratchPool::release(std::unique_ptr<BpeScratch> scratch) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

// One encode(): finds added tokens, normalises what lies between, cuts it, and runs BPE on the
// words.
class TokenizerState::Encoder final : public PieceSink {
 public:
  explicit Encoder(const TokenizerState& state)
      : state_(state), scratch_(state.scratch_pool_.acquire()) {}
  ~Encoder() override { state_.scratch_pool_.release(std::move(scratch_)); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  std::vector<std::int32_t> run(std::string_view text) {
    out_.room_for(text.size() / 3 + WordCache::kMaxIds);
    for (const TextSegment& segment : state_.added_tokens.split_raw(text)) {
      if (segment.id != TextSegment::kText) {
        out_.append(segment.id);
      } else {
        encode_between(text.substr(segment.start, segment.end - segment.start), segment.start == 0);
      }
    }
    return out_.take();
  }

  void take(const Piece& word) override {
    state_.bpe.encode(word.text, word.readable_end, *scratch_, out_);
  }

 private:
  void encode_between(std::string_view raw, bool at_start) {
    std::string storage;
    const std::string_view text = state_.normalizer.run(raw, storage);
    for (const TextSegment& segment : state_.added_tokens.split_normalized(text)) {
      if (segment.id != TextSegment::kText) {
        out_.append(segment.id);
      } else if (segment.start != segment.end) {
        const Piece piece{text.substr(segment.start, segment.end - segment.start),
                          text.data() + text.size(), at_start && segment.start == 0};
        state_.pre_tokenizer.run(piece, *this);
      }
    }
  }

  const TokenizerState& state_;
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
  if (!config.add_bos_token && !config.add_eos_token) return;
  const auto ids_of = [&](const std::optional<bool>& wanted, const std::string& token) {
    std::vector<std::int32_t> ids;
    if (wanted.value_or(false) && find(token) != Vocabulary::kNone) ids.push_back(find(token));
    return ids;
  };
  post_processor = PostProcessor(ids_of(config.add_bos_token, bos_token),
                                 ids_of(config.add_eos_token, eos_token));
}

std::vector<std::int32_t> TokenizerState::encode(std::string_view text) const {
  return Encoder(*this).run(text);
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
