#include "grammar/tokens/automaton_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

// Of few nodes it is as quickly said one by one what all of them do.
bool has_many_below(const TokenTrie& trie, uint32_t node) {
  constexpr uint32_t kFewNodes = 8;
  return trie.nodes()[node].end - node > kFewNodes;
}

// Whether all tokens below a node are texts that may follow its state, whichever they are.
bool takes_all_below(const TokenTrie& trie, uint32_t node, int32_t state, StringLexer& lexer,
                     StringLexer::Outlook& outlook) {
  // Finding an outlook takes about as long as a few hundred nodes.
  constexpr uint32_t kManyNodes = 400;
  const uint32_t num_nodes = trie.nodes()[node].end - node;
  const TokenTrie::Below& below = trie.below(node);
  if (below.most_bytes == 0 || below.kind == TextKind::kOther) return false;
  if (!lexer.is_between_characters(state) && below.kind < TextKind::kUnicode) return false;
  if (num_nodes < kManyNodes && !lexer.knows_outlook(state, below.kind)) return false;
  outlook = lexer.outlook(state, below.kind);
  return outlook.bytes >= below.most_bytes;
}

// Of the tokens of these groups nothing more has to be looked at.
StringLexer::FreeTextOfAll free_text_of(uint32_t node, int32_t state, StringLexer& lexer,
                                        bool counts) {
  // Elsewhere the tokens are few.
  return node == TokenTrie::kRoot ? lexer.free_text(state, counts) : StringLexer::FreeTextOfAll();
}

AutomatonTokens find_tokens(const TokenTrie& trie, uint32_t node, int32_t state,
                            StringLexer& lexer) {
  AutomatonTokens tokens;
  const StringLexer::FreeTextOfAll free = free_text_of(node, state, lexer, false);
  tokens.is_endless = free.is_endless;
  std::vector<int32_t> inside;
  walk_string(trie, node, state, lexer, free.groups, [&](uint32_t i, int32_t before, int32_t next) {
    if (next == StringLexer::kEnd) {
      tokens.quotes.push_back({.node = i, .lexer = before});
      return true;
    }
    tokens.is_endless &= lexer.is_endless(next);
    trie.for_each_token(trie.nodes()[i], [&](int32_t token) { inside.push_back(token); });
    StringLexer::Outlook outlook;
    if (!has_many_below(trie, i) || !takes_all_below(trie, i, next, lexer, outlook)) return true;
    const auto below = trie.tokens_below(i);
    inside.insert(inside.end(), below.begin(), below.end());
    tokens.is_endless &= outlook.is_endless;
    return false;
  });
  if (free.groups == 0) {
    tokens.inside = TokenSet(std::move(inside), trie.num_tokens());
    return tokens;
  }
  std::vector<uint32_t> bits(mask_words(trie.num_tokens()));
  trie.allow_groups(free.groups, bits);
  for (const int32_t token : inside) allow(bits, token);
  tokens.inside = TokenSet::of_bits(std::move(bits));
  return tokens;
}

AutomatonTokens find_limited(const TokenTrie& trie, uint32_t node, int32_t state,
                             StringLexer& lexer) {
  AutomatonTokens tokens;
  std::vector<uint32_t> characters(trie.max_token_bytes() + 1);  // by depth
  std::vector<std::pair<uint32_t, CountedTokensMaker>> by_source;
  const auto of_source = [&](uint32_t source) -> CountedTokensMaker& {
    for (auto& [known, of] : by_source) {
      if (known == source) return of;
    }
    return by_source.emplace_back(source, CountedTokensMaker(trie.num_tokens())).second;
  };
  const StringLexer::FreeTextOfAll free = free_text_of(node, state, lexer, true);
  walk_string(trie, node, state, lexer, free.groups, [&](uint32_t i, int32_t before, int32_t next) {
    const TokenTrie::Node& at = trie.nodes()[i];
    const uint32_t so_far = characters[at.depth - 1U];
    if (next == StringLexer::kEnd) {
      tokens.quotes.push_back({.node = i, .lexer = before, .num_characters = so_far});
      return true;
    }
    const bool begins = lexer.is_between_characters(before);
    characters[at.depth] = so_far + (begins ? 1 : 0);
    StringLexer::Outlook outlook;
    const bool takes_all = has_many_below(trie, i) &&
                           takes_all_below(trie, i, next, lexer, outlook) &&
                           (outlook.needs_nothing || outlook.needs_as_much);
    if (at.token == TokenTrie::kNone && !takes_all) return true;
    lexer.for_each_need(next, [&](uint32_t source, uint32_t more) {
      CountedTokensMaker& of = of_source(source);
      trie.for_each_token(at, [&](int32_t token) { of.add(characters[at.depth] + more, token); });
      if (!takes_all) return;
      const uint32_t more_below = outlook.needs_nothing ? 0 : more;
      const uint32_t so_far_below = characters[at.depth] + more_below;
      const auto in_path = static_cast<uint32_t>(num_characters(trie.path(i)));
      const auto below = trie.tokens_below(i);
      const auto whole = trie.characters_below(i);
      for (size_t k = 0; k < below.size(); ++k) {
        of.add(so_far_below + whole[k] - in_path, below[k]);
      }
    });
    return !takes_all;
  });
  for (const std::pair<uint32_t, uint32_t>& need : free.needs) {
    CountedTokensMaker& of = of_source(need.first);
    trie.for_each_of_groups(free.groups, [&](int32_t token, uint32_t num_characters) {
      of.add(num_characters + need.second, token);
    });
  }
  for (auto& [source, of] : by_source) {
    tokens.limited.push_back({source, std::move(of).make()});
  }
  return tokens;
}

size_t bytes_of(const AutomatonTokens& tokens) {
  size_t bytes = tokens.inside.bytes() + tokens.quotes.size() * sizeof(tokens.quotes[0]) + 256;
  for (const AutomatonTokens::Limited& limited : tokens.limited) bytes += limited.tokens.bytes();
  return bytes;
}

}  // namespace

const AutomatonTokens& AutomatonTokensStore::at(const TokenTrie& trie, uint32_t node, int32_t state,
                                                StringLexer& lexer, bool is_limited) {
  if (num_bytes_ > max_bytes_) {
    known_.clear();
    num_bytes_ = 0;
  }
  const std::tuple key(trie.id(), node, state, is_limited);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  AutomatonTokens tokens =
      is_limited ? find_limited(trie, node, state, lexer) : find_tokens(trie, node, state, lexer);
  num_bytes_ += bytes_of(tokens);
  return known_.emplace(key, std::move(tokens)).first->second;
}

}  // namespace quire::grammar
