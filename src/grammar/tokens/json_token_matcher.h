#pragma once
// Generates JSON byte by byte: which bytes may come so that a text of a JsonLanguage still can be
// finished.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "grammar/tokens/json_language.h"

namespace quire::grammar {

class JsonTokenMatcher final : public ByteMatcher {
 public:
  // `language` must outlive it.
  explicit JsonTokenMatcher(const JsonLanguage& language);

  std::unique_ptr<ByteMatcher> clone() const override;
  bool push(uint8_t byte) override;
  void pop(size_t count) override;
  void commit() override;
  bool can_end() const override;
  bool must_end() const override;
  std::string ending() const override;
  size_t ending_bytes() const override;
  std::optional<std::string> next_bytes() const override;
  size_t allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) override;
  // How many bytes have been tried so far, for texts and masks: what masks cost.
  uint64_t bytes_tried() const { return bytes_tried_; }

 private:
  enum class Phase : uint8_t {
    kValue,
    kFirstItem,  // behind [
    kFirstKey,   // behind {
    kKey,        // behind a comma of an object
    kInKey,
    kColon,  // before it
    kInString,
    kInNumber,
    kInLiteral,
    kAfterValue,  // within an array or object
    kDone
  };
  struct State {
    Phase phase = Phase::kValue;
    uint8_t literal = 0;        // the first letter of null, true or false
    uint16_t white_space = 0;   // bytes of it, just before
    bool is_indented = false;   // these began with a line break
    int32_t lexer = -1;         // the state of a string, a number or a name that is not listed
    uint32_t begin = 0;         // of the string, number or literal, in text_
    uint32_t listed_begin = 0;  // the names that are still possible
    uint32_t listed_end = 0;
    JsonContextPtr context;
    uint8_t num_assumed = 0;  // items that were taken for new ones
    // A bit for each array without repeats around it, the outermost's the lowest: whether the item
    // that is being written there differs from all before it.
    uint64_t differs = 0;
    // Where the shortest ending would repeat an item of an array without repeats: another.
    std::shared_ptr<const std::string> ending;
  };

  static constexpr uint32_t kMostUnique = 64;  // arrays without repeats within each other
  static constexpr uint64_t kAllDiffer = UINT64_MAX;
  // Whether what is written next need not be compared with anything.
  static bool all_differ(const State& at);
  // Calls visit(frame) for the arrays without repeats around a place, the innermost first.
  template <typename Visit>
  static void for_each_unique(const JsonContext& context, const Visit& visit) {
    const JsonFrame* frame = context.frame.get();
    for (; frame != nullptr && frame->needs_text; frame = frame->opened_in->frame.get()) {
      if (frame->is_unique) visit(*frame);
    }
  }

  const JsonFrames& frames() const { return language_->frames(); }
  JsonLanguage::Learnt& learnt() const { return *learnt_; }
  std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(learnt_->mutex); }

  bool take(const State& from, uint8_t byte, State& to);
  bool take_white_space(const State& from, uint8_t byte, State& to) const;
  bool begin_value(const State& from, uint8_t byte, State& to);
  bool begin_container(const State& from, bool is_object, State& to);
  bool take_string(const State& from, uint8_t byte, State& to);
  bool take_number(const State& from, uint8_t byte, State& to);
  bool take_literal(const State& from, uint8_t byte, State& to);
  bool begin_key(const State& from, State& to);
  bool take_key(const State& from, uint8_t byte, State& to);
  bool end_key(const State& from, State& to);
  // Narrows the names that are listed to those with `byte` next.
  void narrow(const State& from, uint8_t byte, State& to) const;
  // Whether a name that is not listed can still become one that has not been used.
  bool can_be_new(const State& at) const;
  bool take_after_value(const State& from, uint8_t byte, State& to);
  bool end_value(const State& from, uint64_t results, State& to);
  bool end_container(const State& from, State& to);

  // null, true or false, by its first letter.
  static std::string_view literal_text(uint8_t first);
  uint64_t literal_results(const State& at) const;
  // Whether the text may end there.
  bool ends_here(const State& at) const;
  // Bytes to the end, at most; the second if nothing is repeated.
  uint32_t cost(const State& at) const;
  uint32_t shortest(const State& at) const;
  static uint32_t detour_bytes(const State& at);
  uint32_t key_cost(const State& at) const;
  // Append to the text so far, up to the end of the item of `stop` that is being written, or of
  // all.
  void append_ending(const State& at, std::string& text, const JsonFrame* stop) const;
  void append_key_ending(const State& at, std::string& text, const JsonFrame* stop) const;
  // Calls visit(slot, bytes to the end of the value) for what may be finished.
  template <typename Visit>
  void for_each_value_ending(const State& at, const Visit& visit) const;
  std::string_view lexeme(const State& at) const {
    return std::string_view(text_).substr(at.begin);
  }

  // How masks are made (json_token_mask.cc).
  class Masker;
  // Takes a byte, under the lock; the second whatever items are repeated then.
  bool advance(uint8_t byte);
  bool advance_unchecked(uint8_t byte);
  // Whether no item of an array without repeats has to repeat another (json_repeats.cc). Finds the
  // ending of the newest state if the shortest is none.
  bool avoids_repeats();
  bool follows_ending();
  bool find_ending_without_repeats();
  // The arrays without repeats, as State::differs has them, of which the string or name that ends
  // at the end of the text makes the item a new one.
  uint64_t makes_new(const State& from) const;
  const JsonFrame* repeated_in(const State& at) const;
  bool find_detour(size_t depth, size_t& num_tries);
  // next_bytes() of a place.
  std::optional<std::string> next_bytes_at(const State& at) const;

  // Contexts that were made since the last commit(), by what led to them. They hold what their
  // keys point to.
  using MemoKey = std::tuple<JsonContextPtr, char, uint64_t>;
  template <typename Make>
  JsonContextPtr remember(const JsonContextPtr& from, char what, uint64_t detail,
                          const Make& make) {
    // There the place in the text matters, too.
    if (from->frame != nullptr && from->frame->needs_text) return make();
    const auto [found, is_new] = memo_.try_emplace(MemoKey{from, what, detail});
    if (is_new) found->second = make();
    return found->second;
  }

  const JsonLanguage* language_;
  std::shared_ptr<JsonLanguage::Learnt> learnt_;
  std::string text_;
  std::vector<State> states_;
  uint64_t bytes_tried_ = 0;
  bool assumes_new_ = false;  // items that end are taken for new ones
  std::map<MemoKey, JsonContextPtr> memo_;
  // The same of the places where names begin, by their contexts.
  struct NewNames {
    JsonFrames::RestsBehind rests_behind;
    std::optional<NameKinds> kinds;
    std::map<size_t, JsonContextPtr> values;  // before the value of a name, by its kind
  };
  std::map<JsonContextPtr, NewNames> new_names_;
};

}  // namespace quire::grammar
