// Which tokens may come next in generated JSON.
//
// Bytes between strings are tried one by one, as few may come. Within strings nearly all may: there
// the vocabulary's StringTokens, and what the language has learnt of its automata, say so at once.
#include <algorithm>

#include "grammar/string_reader.h"
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
  void try_all() {
    const std::optional<std::string> bytes = matcher_.next_bytes_at(at());
    if (!bytes) return walk(0, static_cast<uint32_t>(trie_.nodes().size()), 0);
    for (const char byte : *bytes) {
      const uint32_t node = trie_.child(TokenTrie::kRoot, static_cast<uint8_t>(byte));
      if (node != TokenTrie::kNoNode) walk(node, trie_.nodes()[node].end, 0);
    }
  }

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

  // Tries the nodes [begin, end) one by one.
  void walk(uint32_t begin, uint32_t end, size_t depth_before) {
    const auto nodes = trie_.nodes();
    take_nodes(nodes, begin, end, depth_before, [&](uint32_t i) {
      const TokenTrie::Node& node = nodes[i];
      if (node.token != TokenTrie::kNone && may_end_in_time(matcher_.cost(at()))) {
        trie_.allow_node(node, mask_);
      }
      // A string that begins here may make it unnecessary to try what follows.
      const bool has_begun = node.byte == '"' && at().begin == matcher_.text_.size();
      return has_begun && node.end > i + 1 && jump(i) ? node.end : i + 1;
    });
  }

  // Allows the tokens behind `node` at once; false where that cannot be said.
  bool jump(uint32_t node) {
    if (at().phase == Phase::kInString) {
      return finish_character(node) || jump_in_string(node) || jump_in_automata(node) ||
             walk_automata(node);
    }
    if (at().phase == Phase::kInKey) return jump_in_key(node);
    return false;
  }

  // Where a character has begun, few bytes may come, until it is whole.
  bool finish_character(uint32_t node) {
    const StringLexer& strings = matcher_.learnt().strings;
    const int32_t lexer = at().lexer;
    if (strings.is_between_characters(lexer) || strings.has_automata(lexer)) return false;
    const auto nodes = trie_.nodes();
    const bool is_whole = node == TokenTrie::kRoot;
    const auto end = is_whole ? static_cast<uint32_t>(nodes.size()) : nodes[node].end;
    const Phase phase = at().phase;
    take_nodes(
        nodes, is_whole ? 0 : node + 1, end, is_whole ? 0 : nodes[node].depth, [&](uint32_t i) {
          const TokenTrie::Node& behind = nodes[i];
          if (behind.token != TokenTrie::kNone && may_end_in_time(matcher_.cost(at()))) {
            trie_.allow_node(behind, mask_);
          }
          const bool may_jump =
              at().phase == phase && at().lexer >= 0 && strings.is_between_characters(at().lexer);
          return may_jump && behind.end > i + 1 && jump(i) ? behind.end : i + 1;
        });
    return true;
  }

  bool jump_in_string(uint32_t node) {
    StringLexer& strings = matcher_.learnt().strings;
    const auto rooms = strings.rooms(at().lexer);
    if (!rooms) return false;
    const bool is_new = assume_new();
    const bool may_be_full = std::ranges::any_of(*rooms, [&](const StringLexer::Room& room) {
      return room.most <= trie_.max_token_bytes();
    });
    // A string that is full may be what an item was, in other words.
    if (!is_new && may_be_full) return false;
    const StringTokens& tokens = trie_.string_tokens(node);
    for (const StringLexer::Room& room : *rooms) allow_inside(tokens, room);
    if (!is_new) {
      try_endings(tokens, node);
      return true;
    }
    if (needs_text() && may_be_full) try_full_escaped(tokens, *rooms);
    for_each_length(*rooms, [&](uint64_t least, uint64_t most) {
      State closing = at();
      closing.lexer = strings.behind_characters(at().lexer, least);
      if (matcher_.assumes_new_) closing.differs = kAllDiffer;
      try_suffixes(tokens, std::move(closing), [&](const StringTokens::Ending& ending) {
        if (ending.num_characters < least || ending.num_characters > most) return;
        if (needs_trying(ending)) {
          to_try_.push_back(ending.token);
        } else {
          allow(mask_, ending.token);
        }
      });
    });
    matcher_.assumes_new_ = false;
    try_tokens(node);
    try_used_strings(node);
    return true;
  }

  void allow_inside(const StringTokens& tokens, const StringLexer::Room& room) {
    const size_t behind = size_t{at().context->slots[room.slot].outer} + 1 + detour_bytes(at());
    allow_inside(tokens, room.missing, room.most, behind);
  }
  // `behind`: bytes from behind what the tokens are within to the end.
  void allow_inside(const StringTokens& tokens, uint64_t missing, uint64_t most, size_t behind) {
    // What a token can begin of a character or an escape takes at most 12 bytes to finish.
    if (may_end_in_time(behind + static_cast<size_t>(missing) + 12)) {
      tokens.allow_inside(most, mask_);
    } else if (behind <= most_) {
      tokens.allow_inside_in_time(missing, most, most_ - behind, mask_);
    }
  }

  // Strings with escapes that are full then may be what an item was, in other words.
  void try_full_escaped(const StringTokens& tokens, const std::vector<StringLexer::Room>& rooms) {
    for (const StringTokens::Inside& inside : tokens.escaped_inside()) {
      const bool may_be_full = std::ranges::any_of(
          rooms, [&](const StringLexer::Room& room) { return room.most == inside.num_characters; });
      if (!may_be_full) continue;
      forbid_all(inside.token);
      to_try_.push_back(inside.token);
    }
  }

  // Goes on from a state behind any inside part of a token, and calls allowed(ending) for the
  // tokens whose suffix may follow.
  template <typename Allowed>
  void try_suffixes(const StringTokens& tokens, State from, const Allowed& allowed) {
    matcher_.states_.push_back(std::move(from));
    matcher_.text_ += ' ';
    const auto nodes = tokens.suffixes().nodes();
    take_nodes(nodes, 0, static_cast<uint32_t>(nodes.size()), 0, [&](uint32_t i) {
      const int32_t suffix = nodes[i].token;
      if (suffix != TokenTrie::kNone && may_end_in_time(matcher_.cost(at()))) {
        for (const auto& ending : tokens.endings()[static_cast<size_t>(suffix)]) allowed(ending);
      }
      return i + 1;
    });
    matcher_.pop(1);
  }

  // Tries to_try_ one by one, the bytes up to `node` having been taken.
  void try_tokens(uint32_t node) {
    for (const int32_t token : std::exchange(to_try_, {})) try_token(token, node);
  }
  void try_token(int32_t token, uint32_t node) {
    const size_t taken = node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
    const std::string_view rest = trie_.bytes(token).substr(taken);
    size_t count = 0;
    while (count < rest.size() && matcher_.advance(static_cast<uint8_t>(rest[count]))) ++count;
    if (count == rest.size() && may_end_in_time(matcher_.cost(at()))) allow(mask_, token);
    matcher_.pop(count);
  }

  bool jump_in_automata(uint32_t node) {
    StringLexer& strings = matcher_.learnt().strings;
    const bool is_limited = strings.is_limited(at().lexer);
    if (is_limited && needs_text() && !can_try_used(at())) return false;
    uint32_t outer = 0;
    strings.for_each_ending(at().lexer, [&](uint32_t slot, uint32_t) {
      outer = std::max(outer, at().context->slots[slot].outer);
    });
    if (!may_end_in_time(size_t{outer} + strings.most_ending_bytes(at().lexer) +
                         detour_bytes(at())))
      return false;
    const int32_t free = is_limited ? strings.without_limits(at().lexer) : at().lexer;
    const AutomatonTokens& tokens =
        matcher_.learnt().automaton_tokens.at(trie_, node, free, strings, is_limited);
    if (is_limited) {
      allow_limited(tokens, node);
      if (needs_text()) try_repeats(node);
      return true;
    }
    if (needs_text() && !tokens.is_endless) return false;
    tokens.inside.allow(mask_);
    for (const AutomatonTokens::Quote& quote : tokens.quotes) try_quote(quote, node);
    return true;
  }

  void allow_limited(const AutomatonTokens& tokens, uint32_t node) {
    StringLexer& strings = matcher_.learnt().strings;
    strings.for_each_limit(at().lexer, [&](uint32_t source, uint64_t most) {
      const auto found =
          std::ranges::find(tokens.limited, source, &AutomatonTokens::Limited::source);
      if (found != tokens.limited.end()) found->tokens.allow(0, most, mask_);
    });
    const std::vector<AutomatonTokens::Quote> quotes = tokens.quotes;
    for (AutomatonTokens::Quote quote : quotes) {
      quote.lexer = strings.with_limits(at().lexer, quote.lexer, quote.num_characters);
      if (quote.lexer == StringLexer::kDead) continue;
      if (needs_text() && trie_.path(quote.node).find('\\') != std::string_view::npos) {
        try_quote_from_begin(quote.node, node);
      } else {
        try_quote(quote, node);
      }
    }
  }

  bool can_try_used(const State& state) const {
    return matcher_.learnt().strings.is_between_characters(state.lexer) &&
           state.context->frame->num_unique <= kMostUnique;
  }
  // Few texts may be left where their length has a limit, so a token may leave those only that
  // repeat an item. The text then begins a string that an item has: as it is, or with escapes.
  void try_repeats(uint32_t node) {
    for (const StringTokens::Inside& inside : trie_.string_tokens(node).escaped_inside()) {
      if (!is_allowed(mask_, inside.token)) continue;
      forbid(inside.token);
      to_try_.push_back(inside.token);
    }
    try_tokens(node);
    try_used_strings(node);
  }

  // Near the end each token's own way there counts, that of the string's automata alone.
  bool walk_automata(uint32_t node) {
    if (needs_text()) return false;
    StringLexer& strings = matcher_.learnt().strings;
    const State from = at();
    std::vector<AutomatonTokens::Quote> quotes;
    walk_string(trie_, node, from.lexer, strings, 0, [&](uint32_t i, int32_t before, int32_t next) {
      const TokenTrie::Node& behind = trie_.nodes()[i];
      if (next == StringLexer::kEnd) {
        quotes.push_back({.node = i, .lexer = before});
      } else if (behind.token != TokenTrie::kNone) {
        uint32_t best = JsonCompletion::kNever;
        strings.for_each_ending(next, [&](uint32_t slot, uint32_t bytes) {
          best = std::min(best, JsonCompletion::sum(bytes, from.context->slots[slot].outer));
        });
        if (may_end_in_time(best)) trie_.allow_node(behind, mask_);
      }
      return true;
    });
    for (const AutomatonTokens::Quote& quote : quotes) try_quote(quote, node);
    return true;
  }

  // The same where the bytes before the quote have to be taken one by one.
  void try_quote_from_begin(uint32_t quote, uint32_t node) {
    const size_t depth = node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
    const TokenTrie::Node& behind = trie_.nodes()[quote];
    const std::string_view path = trie_.path(quote);
    const std::string_view before = path.substr(depth, path.size() - 1 - depth);
    size_t count = 0;
    while (count < before.size() && matcher_.advance(static_cast<uint8_t>(before[count]))) ++count;
    if (count == before.size()) walk(quote, behind.end, behind.depth - 1U);
    matcher_.pop(count);
  }

  bool needs_text() const {
    const JsonFrame* frame = at().context->frame.get();
    return frame != nullptr && frame->needs_text;
  }

  // Within arrays without repeats: a string that no item before has makes the items new ones,
  // so only those that one has need to be tried. False where that does not hold.
  bool assume_new() {
    if (!needs_text()) return true;
    if (at().context->frame->num_unique > kMostUnique) return false;
    matcher_.assumes_new_ = true;
    return true;
  }
  // Whether a suffix may depend on more than that: another item has begun, or the string has
  // escapes, so that it may be one that an item has, in other words.
  bool needs_trying(const StringTokens::Ending& ending) const {
    return matcher_.assumes_new_ && (ending.has_escape || at().num_assumed > 1 ||
                                     (at().num_assumed > 0 && !at().context->slots.empty()));
  }
  void try_used_strings(uint32_t node) {
    if (!needs_text()) return;
    const std::string written = decode_json_string(matcher_.lexeme(at()));
    const JsonContextPtr context = at().context;
    for_each_unique(*context, [&](const JsonFrame& frame) {
      frame.strings.for_each([&](std::string_view text) {
        if (text.starts_with(written)) try_name(text.substr(written.size()), node);
      });
    });
  }
  void try_endings(const StringTokens& tokens, uint32_t node) {
    for (const auto& endings : tokens.endings()) {
      for (const StringTokens::Ending& ending : endings) try_token(ending.token, node);
    }
  }

  // Tries what closes a string of automata. The bytes before the quote need not be taken again.
  void try_quote(const AutomatonTokens::Quote& quote, uint32_t node) {
    const size_t depth = node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
    const TokenTrie::Node& behind = trie_.nodes()[quote.node];
    const size_t count = behind.depth - 1U - depth;
    State before = at();
    before.lexer = quote.lexer;
    before.listed_end = before.listed_begin;
    matcher_.states_.resize(matcher_.states_.size() + count, before);
    matcher_.text_ += trie_.path(quote.node).substr(depth, count);
    walk(quote.node, behind.end, behind.depth - 1U);
    matcher_.pop(count);
  }

  // Names that are listed or used are tried one by one.
  bool jump_in_key(uint32_t node) {
    if (at().lexer == StringLexer::kDead) return false;
    if (!at().context->keys->any) return jump_in_key_of_automata(node);
    return finish_character(node) || jump_in_any_key(node);
  }

  bool jump_in_key_of_automata(uint32_t node) {
    StringLexer& strings = matcher_.learnt().strings;
    const JsonKeys& keys = *at().context->keys;
    if (strings.is_limited(at().lexer) ||
        !may_end_in_time(size_t{keys.other_cost} + strings.most_ending_bytes(at().lexer) +
                         detour_bytes(at()))) {
      return false;
    }
    const AutomatonTokens& tokens =
        matcher_.learnt().automaton_tokens.at(trie_, node, at().lexer, strings, false);
    if (!tokens.is_endless) return false;
    tokens.inside.allow(mask_);
    for (const AutomatonTokens::Quote& quote : tokens.quotes) try_quote(quote, node);
    try_listed(node);
    return true;
  }

  void try_listed(uint32_t node) {
    const JsonKeys& keys = *at().context->keys;
    const size_t written = matcher_.lexeme(at()).size();
    for (uint32_t i = at().listed_begin; i < at().listed_end; ++i) {
      const std::string_view spelled = keys.listed[i].spelled;
      try_name(spelled.substr(written, spelled.size() - 1 - written), node);
    }
  }

  bool jump_in_any_key(uint32_t node) {
    const JsonKeys& keys = *at().context->keys;
    if (!matcher_.learnt().strings.rooms(at().lexer)) return false;
    const JsonContextPtr key_context = at().context;
    const JsonContextPtr context = matcher_.remember(key_context, 'f', 0, [&] {
      const auto name = matcher_.frames().another_name(*key_context, "");
      return name ? matcher_.frames().begin_value_of(*key_context, *name) : nullptr;
    });
    if (context == nullptr) return false;
    const StringTokens& tokens = trie_.string_tokens(node);
    allow_inside(tokens, 0, UINT64_MAX, size_t{keys.other_cost} + 1 + detour_bytes(at()));
    // Names that have patterns are tried as a whole.
    if (!keys.are_alike || !assume_new()) {
      try_endings(tokens, node);
      return true;
    }
    State behind = at();
    behind.phase = Phase::kColon;
    if (matcher_.assumes_new_) behind.differs = kAllDiffer;
    behind.context = context;
    try_key_suffixes(tokens, behind);
    matcher_.assumes_new_ = false;
    try_tokens(node);
    try_used_strings(node);
    const std::string written = decode_json_string(matcher_.lexeme(at()));
    const auto try_if_begun = [&](std::string_view name) {
      if (name.starts_with(written)) try_name(name.substr(written.size()), node);
    };
    context->frame->names.for_each(try_if_begun);
    try_listed(node);
    // Names that are listed and may not come.
    matcher_.frames().for_each_listed(*key_context, try_if_begun);
    return true;
  }

  void try_key_suffixes(const StringTokens& tokens, const State& behind) {
    const auto nodes = tokens.suffixes().nodes();
    for (uint32_t i = 0; i < nodes.size(); i = nodes[i].end) {
      // All begin with the quote.
      matcher_.states_.push_back(behind);
      matcher_.text_ += '"';
      if (nodes[i].token != TokenTrie::kNone) allow_key_endings(tokens, nodes[i].token, false);
      uint32_t second_name_end = 0;  // another name may be one that is used by then
      take_nodes(nodes, i + 1, nodes[i].end, 1, [&](uint32_t j) {
        if (at().phase == Phase::kInKey) second_name_end = std::max(second_name_end, nodes[j].end);
        if (nodes[j].token != TokenTrie::kNone) {
          allow_key_endings(tokens, nodes[j].token, j < second_name_end);
        }
        return j + 1;
      });
      matcher_.pop(1);
    }
  }

  void allow_key_endings(const StringTokens& tokens, int32_t suffix, bool has_second_name) {
    if (!may_end_in_time(matcher_.cost(at()))) return;
    for (const auto& ending : tokens.endings()[static_cast<size_t>(suffix)]) {
      if (ending.has_escape || has_second_name || needs_trying(ending)) {
        to_try_.push_back(ending.token);
      } else {
        allow(mask_, ending.token);
      }
    }
  }

  // Tries what begins with the rest of a name: on the way to its quote, and all behind that.
  void try_name(std::string_view rest, uint32_t node) {
    size_t count = 0;
    for (const char c : rest) {
      node = trie_.child(node, static_cast<uint8_t>(c));
      if (node == TokenTrie::kNoNode) break;
      if (!matcher_.advance(static_cast<uint8_t>(c))) {
        forbid_below(node);
        break;
      }
      ++count;
      if (may_end_in_time(matcher_.cost(at()))) trie_.allow_node(trie_.nodes()[node], mask_);
    }
    if (count == rest.size()) {
      const uint32_t quote = trie_.child(node, '"');
      if (quote != TokenTrie::kNoNode) {
        forbid_below(quote);
        walk(quote, trie_.nodes()[quote].end, trie_.nodes()[quote].depth - 1U);
      }
    }
    matcher_.pop(count);
  }

  JsonTokenMatcher& matcher_;
  const TokenTrie& trie_;
  size_t most_;
  size_t longest_ending_ = 0;  // that was asked about
  TokenMask mask_;
  std::vector<int32_t> to_try_;
};

size_t JsonTokenMatcher::allow_tokens(const TokenTrie& trie, size_t most_ending_bytes,
                                      TokenMask mask) {
  const auto lock = this->lock();
  return Masker(*this, trie, most_ending_bytes, mask).run();
}

}  // namespace quire::grammar
