// Which tokens may come next in generated JSON.
//
// Bytes between strings are tried one by one, as few may come. Within strings nearly all may: there
// the vocabulary's StringTokens, and what the language has learnt of its automata, say so at once.
#include <algorithm>

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
    const std::optional<std::string> bytes = matcher_.next_bytes(at());
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
  void forbid_all(int32_t token) {
    for (; token != TokenTrie::kNone; token = trie_.next_alike(token)) {
      mask_[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (static_cast<size_t>(token) % 32));
    }
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
    if (at().phase == Phase::kInString) return jump_in_string(node) || jump_in_automata(node);
    if (at().phase == Phase::kInKey) return jump_in_key(node);
    return false;
  }

  bool jump_in_string(uint32_t node) {
    const auto free = matcher_.learnt().strings.free_text(at().lexer, trie_.max_token_bytes());
    // What a token can begin of a character or an escape takes at most 12 bytes to finish.
    if (!free || !may_end_in_time(matcher_.cost(at()) + 12)) return false;
    const StringTokens& tokens = trie_.string_tokens(node);
    tokens.allow_inside(mask_);
    if (!assume_new()) {
      try_endings(tokens, node);
      return true;
    }
    State satisfied = at();
    satisfied.lexer = free->satisfied;
    satisfied.differs = matcher_.assumes_new_;
    try_suffixes(tokens, std::move(satisfied), [&](const StringTokens::Ending& ending) {
      if (ending.num_characters >= free->num_missing && !needs_trying(ending)) {
        allow(mask_, ending.token);
      } else {
        to_try_.push_back(ending.token);
      }
    });
    matcher_.assumes_new_ = false;
    try_tokens(node);
    try_used_strings(node);
    return true;
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
    uint32_t outer = 0;
    strings.for_each_ending(at().lexer, [&](uint32_t slot, uint32_t) {
      outer = std::max(outer, at().context->slots[slot].outer);
    });
    if (!may_end_in_time(size_t{outer} + strings.most_ending_bytes(at().lexer) +
                         detour_bytes(at())))
      return false;
    const AutomatonTokens& tokens =
        matcher_.learnt().automaton_tokens.at(trie_, node, at().lexer, strings);
    if (needs_text() && !tokens.is_endless) return false;
    tokens.inside.allow(mask_);
    for (const AutomatonTokens::Quote& quote : tokens.quotes) try_quote(quote, node);
    return true;
  }

  bool needs_text() const {
    const JsonFrame* frame = at().context->frame.get();
    return frame != nullptr && frame->needs_text;
  }

  // Within an array without repeats: a string that no item before has makes the item a new one, so
  // only those that one has need to be tried. False where that does not hold.
  bool assume_new() {
    if (!needs_text()) return true;
    if (at().context->frame->num_unique != 1) return false;
    if (matcher_.lexeme(at()).find('\\') != std::string_view::npos) return false;
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
    const JsonFrame* frame = at().context->frame.get();
    while (!frame->is_unique) frame = frame->opened_in->frame.get();
    const std::string written(matcher_.lexeme(at()));
    frame->strings.for_each([&](std::string_view text) {
      if (text.starts_with(written)) try_name(text.substr(written.size()), node);
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
    return at().context->keys->any ? jump_in_any_key(node) : jump_in_key_of_automata(node);
  }

  bool jump_in_key_of_automata(uint32_t node) {
    StringLexer& strings = matcher_.learnt().strings;
    const JsonKeys& keys = *at().context->keys;
    if (!may_end_in_time(size_t{keys.other_cost} + strings.most_ending_bytes(at().lexer) +
                         detour_bytes(at()))) {
      return false;
    }
    const AutomatonTokens& tokens =
        matcher_.learnt().automaton_tokens.at(trie_, node, at().lexer, strings);
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
    if (!matcher_.learnt().strings.free_text(at().lexer, trie_.max_token_bytes()) ||
        !may_end_in_time(size_t{keys.other_cost} + 16 + detour_bytes(at()))) {
      return false;
    }
    const JsonContextPtr key_context = at().context;
    const JsonContextPtr context = matcher_.remember(key_context, 'f', 0, [&] {
      const auto name = matcher_.frames().another_name(*key_context, "");
      return name ? matcher_.frames().begin_value_of(*key_context, *name) : nullptr;
    });
    if (context == nullptr) return false;
    const StringTokens& tokens = trie_.string_tokens(node);
    tokens.allow_inside(mask_);
    // Names that are written with escapes, or have patterns, are tried as a whole.
    if (!keys.are_alike || matcher_.lexeme(at()).find('\\') != std::string_view::npos ||
        !assume_new()) {
      try_endings(tokens, node);
      return true;
    }
    State behind = at();
    behind.phase = Phase::kColon;
    behind.differs = matcher_.assumes_new_;
    behind.context = context;
    try_key_suffixes(tokens, behind);
    matcher_.assumes_new_ = false;
    try_tokens(node);
    try_used_strings(node);
    const std::string written(matcher_.lexeme(at()));
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
      if (node == TokenTrie::kNoNode || !matcher_.advance(static_cast<uint8_t>(c))) break;
      ++count;
      if (may_end_in_time(matcher_.cost(at()))) trie_.allow_node(trie_.nodes()[node], mask_);
    }
    if (count == rest.size()) {
      const uint32_t quote = trie_.child(node, '"');
      if (quote != TokenTrie::kNoNode) {
        for (uint32_t i = quote; i < trie_.nodes()[quote].end; ++i) {
          forbid_all(trie_.nodes()[i].token);
        }
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
