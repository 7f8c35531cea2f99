#include "grammar/tokens/dfa_language.h"

namespace quire::grammar {
namespace {

class DfaMatcher final : public ByteMatcher {
 public:
  explicit DfaMatcher(const DfaLanguage& language)
      : language_(&language), states_{language.dfa().start()} {}

  std::unique_ptr<ByteMatcher> clone() const override {
    return std::make_unique<DfaMatcher>(*this);
  }
  bool push(uint8_t byte) override {
    const int32_t next = language_->dfa().step(states_.back(), byte);
    if (next == Dfa::kDead) return false;
    states_.push_back(next);
    return true;
  }
  void pop(size_t count) override { states_.resize(states_.size() - count); }
  void commit() override { states_.erase(states_.begin(), states_.end() - 1); }
  bool can_end() const override { return language_->dfa().accepts(states_.back()); }
  bool must_end() const override { return !language_->endings().goes_on(states_.back()); }
  std::string ending() const override {
    std::string text;
    language_->endings().append(states_.back(), text);
    return text;
  }
  size_t ending_bytes() const override { return language_->endings().distance(states_.back()); }
  size_t allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) override {
    const DfaEndings& endings = language_->endings();
    const int32_t state = states_.back();
    if (most_ending_bytes >= endings.largest_distance()) {
      allow_all(language_->masks().get(language_->dfa(), state, trie)->tokens, mask);
      return endings.largest_distance();
    }
    walk_dfa(language_->dfa(), state, trie, [&](const TokenTrie::Node& node, size_t, int32_t at) {
      if (endings.distance(at) <= most_ending_bytes) trie.allow_node(node, mask);
      return true;
    });
    return kNoEnding;
  }

 private:
  const DfaLanguage* language_;
  std::vector<int32_t> states_;
};

}  // namespace

std::unique_ptr<ByteMatcher> DfaLanguage::begin() const {
  return std::make_unique<DfaMatcher>(*this);
}

}  // namespace quire::grammar
