// Which tokens may come next in generated JSON, but for names (json_name_mask.cc).
#include <algorithm>

#include "grammar/string_reader.h"
#include "grammar/tokens/json_masker.h"

namespace quire::grammar {

void JsonTokenMatcher::Masker::try_all() {
  const std::optional<std::string> bytes = matcher_.next_bytes_at(at());
  if (!bytes) return walk(0, static_cast<uint32_t>(trie_.nodes().size()), 0);
  for (const char byte : *bytes) {
    const uint32_t node = trie_.child(TokenTrie::kRoot, static_cast<uint8_t>(byte));
    if (node != TokenTrie::kNoNode) walk(node, trie_.nodes()[node].end, 0);
  }
}

void JsonTokenMatcher::Masker::walk(uint32_t begin, uint32_t end, size_t depth_before) {
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

bool JsonTokenMatcher::Masker::jump(uint32_t node) {
  if (at().phase == Phase::kInString) {
    return finish_character(node) || jump_in_string(node) || jump_in_automata(node) ||
           walk_automata(node);
  }
  if (at().phase == Phase::kInKey) return jump_in_key(node);
  return false;
}

bool JsonTokenMatcher::Masker::finish_character(uint32_t node) {
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

bool JsonTokenMatcher::Masker::jump_in_string(uint32_t node) {
  StringLexer& strings = matcher_.learnt().strings;
  const auto rooms = strings.rooms(at().lexer);
  if (!rooms) return false;
  const bool is_new = assume_new();
  const bool may_be_full = std::ranges::any_of(
      *rooms, [&](const StringLexer::Room& room) { return room.most <= trie_.max_token_bytes(); });
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
      return ending.num_characters >= least && ending.num_characters <= most;
    });
  });
  matcher_.assumes_new_ = false;
  try_tokens(node);
  try_used_strings(node);
  return true;
}

void JsonTokenMatcher::Masker::allow_inside(const StringTokens& tokens,
                                            const StringLexer::Room& room) {
  const size_t behind = size_t{at().context->slots[room.slot].outer} + 1 + detour_bytes(at());
  allow_inside(tokens, room.missing, room.most, behind);
}

void JsonTokenMatcher::Masker::allow_inside(const StringTokens& tokens, uint64_t missing,
                                            uint64_t most, size_t behind) {
  // What a token can begin of a character or an escape takes at most 12 bytes to finish.
  if (may_end_in_time(behind + static_cast<size_t>(missing) + 12)) {
    tokens.allow_inside(most, mask_);
  } else if (behind <= most_) {
    tokens.allow_inside_in_time(missing, most, most_ - behind, mask_);
  }
}

void JsonTokenMatcher::Masker::try_full_escaped(const StringTokens& tokens,
                                                const std::vector<StringLexer::Room>& rooms) {
  for (const StringTokens::Inside& inside : tokens.escaped_inside()) {
    const bool may_be_full = std::ranges::any_of(
        rooms, [&](const StringLexer::Room& room) { return room.most == inside.num_characters; });
    if (!may_be_full) continue;
    forbid_all(inside.token);
    to_try_.push_back(inside.token);
  }
}

void JsonTokenMatcher::Masker::try_tokens(uint32_t node) {
  for (const int32_t token : std::exchange(to_try_, {})) try_token(token, node);
}

void JsonTokenMatcher::Masker::try_token(int32_t token, uint32_t node) {
  const size_t taken = node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
  const std::string_view rest = trie_.bytes(token).substr(taken);
  size_t count = 0;
  while (count < rest.size() && matcher_.advance(static_cast<uint8_t>(rest[count]))) ++count;
  if (count == rest.size() && may_end_in_time(matcher_.cost(at()))) allow(mask_, token);
  matcher_.pop(count);
}

bool JsonTokenMatcher::Masker::jump_in_automata(uint32_t node) {
  StringLexer& strings = matcher_.learnt().strings;
  const bool is_limited = strings.is_limited(at().lexer);
  if (is_limited && needs_text() && !can_try_used(at())) return false;
  uint32_t outer = 0;
  strings.for_each_ending(at().lexer, [&](uint32_t slot, uint32_t) {
    outer = std::max(outer, at().context->slots[slot].outer);
  });
  if (!may_end_in_time(size_t{outer} + strings.most_ending_bytes(at().lexer) + detour_bytes(at())))
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

void JsonTokenMatcher::Masker::allow_limited(const AutomatonTokens& tokens, uint32_t node) {
  StringLexer& strings = matcher_.learnt().strings;
  strings.for_each_limit(at().lexer, [&](uint32_t source, uint64_t most) {
    const auto found = std::ranges::find(tokens.limited, source, &AutomatonTokens::Limited::source);
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

void JsonTokenMatcher::Masker::try_repeats(uint32_t node) {
  for (const StringTokens::Inside& inside : trie_.string_tokens(node).escaped_inside()) {
    if (!is_allowed(mask_, inside.token)) continue;
    forbid(inside.token);
    to_try_.push_back(inside.token);
  }
  try_tokens(node);
  try_used_strings(node);
}

bool JsonTokenMatcher::Masker::walk_automata(uint32_t node) {
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

void JsonTokenMatcher::Masker::try_quote_from_begin(uint32_t quote, uint32_t node) {
  const size_t depth = node == TokenTrie::kRoot ? 0 : trie_.nodes()[node].depth;
  const TokenTrie::Node& behind = trie_.nodes()[quote];
  const std::string_view path = trie_.path(quote);
  const std::string_view before = path.substr(depth, path.size() - 1 - depth);
  size_t count = 0;
  while (count < before.size() && matcher_.advance(static_cast<uint8_t>(before[count]))) ++count;
  if (count == before.size()) walk(quote, behind.end, behind.depth - 1U);
  matcher_.pop(count);
}

bool JsonTokenMatcher::Masker::assume_new() {
  if (!needs_text()) return true;
  if (at().context->frame->num_unique > kMostUnique) return false;
  matcher_.assumes_new_ = true;
  return true;
}

void JsonTokenMatcher::Masker::try_used_strings(uint32_t node) {
  if (!needs_text()) return;
  const std::string written = decode_json_string(matcher_.lexeme(at()));
  const JsonContextPtr context = at().context;
  for_each_unique(*context, [&](const JsonFrame& frame) {
    frame.strings.for_each([&](std::string_view text) {
      if (text.starts_with(written)) try_name(text.substr(written.size()), node);
    });
  });
}

void JsonTokenMatcher::Masker::try_endings(const StringTokens& tokens, uint32_t node) {
  for (const auto& endings : tokens.endings()) {
    for (const StringTokens::Ending& ending : endings) try_token(ending.token, node);
  }
}

void JsonTokenMatcher::Masker::try_quote(const AutomatonTokens::Quote& quote, uint32_t node) {
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

void JsonTokenMatcher::Masker::try_name(std::string_view rest, uint32_t node) {
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

size_t JsonTokenMatcher::allow_tokens(const TokenTrie& trie, size_t most_ending_bytes,
                                      TokenMask mask) {
  const auto lock = this->lock();
  return Masker(*this, trie, most_ending_bytes, mask).run();
}

}  // namespace quire::grammar
