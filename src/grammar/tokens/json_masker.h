#pragma once
// Which tokens may come next in generated JSON: json_token_mask.cc goes through brackets, values
// and strings, json_name_mask.cc through names.
//
// Bytes between strings are tried one by one, as few may come. Within strings nearly all may: there
// the vocabulary's StringTokens, and what the language has learnt of its automata, say so at once.
// Thread safety: one thread at a time, which has the matcher's lock.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/tokens/json_token_matcher.h"
#include "grammar/tokens/string_tokens.h"

namespace quire::grammar {

class JsonTokenMatcher::Masker {
 public:
  Masker(JsonTokenMatcher& matcher, const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask)
      : matcher_(matcher), trie_(trie), most_(most_ending_bytes), mask_(mask) {}

  // Returns what allow_tokens() does.
  size_t run() {
    if (!jump(TokenTrie::kRoot)) try_all();
    return longest_ending_;
  }

 private:
  const State& at() const { return matcher_.states_.back(); }
  // All that depends on the limit asks here: with one that no question exceeds, the mask is the
  // same.
  bool may_end_in_time(size_t bytes) {
    longest_ending_ = std::max(longest_ending_, bytes);
    return most_ == ByteMatcher::kNoEnding || bytes <= most_;
  }
  void forbid(int32_t token) {
    mask_[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (static_cast<size_t>(token) % 32));
  }
  void forbid_all(int32_t token) {
    for (; token != TokenTrie::kNone; token = trie_.next_alike(token)) forbid(token);
  }
  void forbid_below(uint32_t node) {
    for (uint32_t i = node; i < trie_.nodes()[node].end; ++i) forbid_all(trie_.nodes()[i].token);
  }
  // The bytes of a node that have been taken.
  size_t depth_of(uint32_t node) const {
    return node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
  }

  // Takes the bytes of nodes [begin, end), which are below one of `depth_before` whose bytes have
  // been taken, as far as they may come. behind(i) is called behind those of node i, and says which
  // node comes next; the matcher ends where it was.
  template <typename Behind>
  void take_nodes(std::span<const TokenTrie::Node> nodes, uint32_t begin, uint32_t end,
                  size_t depth_before, const Behind& behind) {
    size_t depth = depth_before;
    for (uint32_t i = begin; i < end;) {
      const TokenTrie::Node& node = nodes[i];
      matcher_.pop(depth - (node.depth - 1U));
      depth = node.depth - 1U;
      if (!matcher_.advance(node.byte)) {
        i = node.end;
        continue;
      }
      ++depth;
      i = behind(i);
    }
    matcher_.pop(depth - depth_before);
  }

  void try_all();
  // Tries the nodes [begin, end) one by one.
  void walk(uint32_t begin, uint32_t end, size_t depth_before);
  // Tries what begins with the rest of a name: on the way to its quote, and all behind that.
  void try_name(std::string_view rest, uint32_t node);
  // Tries tokens one by one, the bytes up to `node` having been taken.
  void try_token(int32_t token, uint32_t node);
  void try_tokens(uint32_t node);  // to_try_
  void try_endings(const StringTokens& tokens, uint32_t node);

  // Allows the tokens behind `node` at once; false where that cannot be said.
  bool jump(uint32_t node);
  // Where a character has begun, few bytes may come, until it is whole.
  bool finish_character(uint32_t node);
  bool jump_in_string(uint32_t node);
  void allow_inside(const StringTokens& tokens, const StringLexer::Room& room);
  // `behind`: bytes from behind what the tokens are within to the end.
  void allow_inside(const StringTokens& tokens, uint64_t missing, uint64_t most, size_t behind);
  // Strings with escapes that are full then may be what an item was, in other words.
  void try_full_escaped(const StringTokens& tokens, const std::vector<StringLexer::Room>& rooms);
  // Goes on from a state behind any inside part of a token, and calls take_ending() for the tokens
  // whose suffix may follow and that fulfil `fits(ending)`.
  template <typename Fits>
  void try_suffixes(const StringTokens& tokens, State from, const Fits& fits) {
    matcher_.states_.push_back(std::move(from));
    matcher_.text_ += ' ';
    const auto nodes = tokens.suffixes().nodes();
    take_nodes(nodes, 0, static_cast<uint32_t>(nodes.size()), 0, [&](uint32_t i) {
      if (nodes[i].token != TokenTrie::kNone) take_endings(tokens, nodes[i].token, false, fits);
      return i + 1;
    });
    matcher_.pop(1);
  }

  // At a state behind a suffix: allows the tokens that end with it and fit, if all is known of them
  // and there is time, or has them tried one by one.
  template <typename Fits>
  void take_endings(const StringTokens& tokens, int32_t suffix, bool try_all, const Fits& fits) {
    const bool is_in_time = may_end_in_time(matcher_.cost(at()));
    // What is assumed of the items is that any way to the end may be needed.
    if (!is_in_time && matcher_.shortest(at()) > most_) return;
    for (const StringTokens::Ending& ending : tokens.endings()[static_cast<size_t>(suffix)]) {
      if (!fits(ending)) continue;
      if (try_all || needs_trying(ending)) {
        to_try_.push_back(ending.token);
      } else if (is_in_time) {
        allow(mask_, ending.token);
      }
    }
  }

  bool jump_in_automata(uint32_t node);
  void allow_limited(const AutomatonTokens& tokens, uint32_t node);
  // Near the end each token's own way there counts, that of the string's automata alone.
  bool walk_automata(uint32_t node);
  // Tries what closes a string of automata. The bytes before the quote need not be taken again.
  void try_quote(const AutomatonTokens::Quote& quote, uint32_t node);
  // The same where the bytes before the quote have to be taken one by one.
  void try_quote_from_begin(uint32_t quote, uint32_t node);

  bool needs_text() const {
    const JsonFrame* frame = at().context->frame.get();
    return frame != nullptr && frame->needs_text;
  }
  bool can_try_used(const State& state) const {
    return matcher_.learnt().strings.is_between_characters(state.lexer) &&
           state.context->frame->num_unique <= kMostUnique;
  }
  // Few texts may be left where their length has a limit, so a token may leave those only that
  // repeat an item. The text then begins a string that an item has: as it is, or with escapes.
  void try_repeats(uint32_t node);
  // Within arrays without repeats: a string that no item before has makes the items new ones,
  // so only those that one has need to be tried. False where that does not hold.
  bool assume_new();
  // Whether a suffix may depend on more than that: another item has begun, or the string has
  // escapes, so that it may be one that an item has, in other words.
  bool needs_trying(const StringTokens::Ending& ending) const {
    return matcher_.assumes_new_ && (ending.has_escape || at().num_assumed > 1 ||
                                     (at().num_assumed > 0 && !at().context->slots.empty()));
  }
  void try_used_strings(uint32_t node);

  // Names (json_name_mask.cc).
  bool jump_in_key(uint32_t node);
  bool jump_in_any_key(uint32_t node);
  bool jump_in_key_of_automata(uint32_t node);
  // What closes a name, and goes on behind it.
  void allow_name_endings(uint32_t node);
  // Of names that change nothing but what is asked of their values, by their kinds.
  void allow_new_names(const StringTokens& tokens);
  JsonContextPtr value_of_kind(size_t kind);
  // Allows the tokens whose text before the quote is of `kind`, by kinds of prefixes.
  void try_key_suffixes(const StringTokens& tokens, const State& behind,
                        const std::vector<size_t>& kinds, size_t kind);
  // The names that are listed and may come, one by one.
  void try_listed(uint32_t node);
  // And the others on which more depends.
  void try_special_names(uint32_t node);

  JsonTokenMatcher& matcher_;
  const TokenTrie& trie_;
  size_t most_;
  size_t longest_ending_ = 0;  // that was asked about
  TokenMask mask_;
  std::vector<int32_t> to_try_;
};

}  // namespace quire::grammar
