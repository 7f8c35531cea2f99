// Which tokens may come next within a name of generated JSON.
//
// Of most names only the kind matters (name_kinds.h): what follows them is found once for each
// kind, and then holds for all tokens that finish a name of it. The few names of which more depends
// are tried one by one: those that are used or listed, and those that have to come, or others with
// them.
#include <limits>

#include "grammar/string_reader.h"
#include "grammar/tokens/json_masker.h"

namespace quire::grammar {
namespace {

constexpr size_t kNoKind = std::numeric_limits<size_t>::max();

}  // namespace

bool JsonTokenMatcher::Masker::jump_in_key(uint32_t node) {
  if (at().lexer == StringLexer::kDead) return false;
  if (!at().context->keys->any) return jump_in_key_of_automata(node);
  return finish_character(node) || jump_in_any_key(node);
}

bool JsonTokenMatcher::Masker::jump_in_key_of_automata(uint32_t node) {
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
  if (strings.is_between_characters(at().lexer)) {
    allow_name_endings(node);
    return true;
  }
  for (const AutomatonTokens::Quote& quote : tokens.quotes) try_quote(quote, node);
  try_listed(node);
  return true;
}

bool JsonTokenMatcher::Masker::jump_in_any_key(uint32_t node) {
  if (!matcher_.learnt().strings.rooms(at().lexer)) return false;
  const size_t behind = size_t{at().context->keys->other_cost} + 1 + detour_bytes(at());
  allow_inside(trie_.string_tokens(node), 0, UINT64_MAX, behind);
  allow_name_endings(node);
  return true;
}

void JsonTokenMatcher::Masker::allow_name_endings(uint32_t node) {
  const StringTokens& tokens = trie_.string_tokens(node);
  if (assume_new()) {
    allow_new_names(tokens);
    matcher_.assumes_new_ = false;
    try_tokens(node);
    try_used_strings(node);
  } else {
    try_endings(tokens, node);
  }
  try_listed(node);
  try_special_names(node);
}

void JsonTokenMatcher::Masker::allow_new_names(const StringTokens& tokens) {
  StringLexer& strings = matcher_.learnt().strings;
  NewNames& names = matcher_.new_names_[at().context];
  if (!names.kinds) names.kinds = matcher_.frames().kinds_of_names(*at().context);
  const auto begun = names.kinds->begin(decode_json_string(matcher_.lexeme(at())));
  std::vector<size_t> kinds;  // of the tokens' texts before the quote
  for (const std::string& prefix : tokens.prefixes()) {
    int32_t lexer = at().lexer;
    for (size_t i = 0; i < prefix.size() && lexer >= 0; ++i) {
      lexer = strings.step(lexer, static_cast<uint8_t>(prefix[i]));
    }
    const bool may_end = lexer >= 0 && strings.results(lexer) != 0;
    kinds.push_back(may_end ? names.kinds->kind_of(begun, prefix) : kNoKind);
  }
  std::vector<size_t> different = kinds;
  std::ranges::sort(different);
  different.erase(std::unique(different.begin(), different.end()), different.end());
  for (const size_t kind : different) {
    if (kind == kNoKind) continue;
    State behind = at();
    behind.phase = Phase::kColon;
    if (matcher_.assumes_new_) behind.differs = kAllDiffer;
    behind.context = value_of_kind(kind);
    if (behind.context != nullptr) try_key_suffixes(tokens, behind, kinds, kind);
  }
  for (const auto& endings : tokens.endings()) {
    for (const StringTokens::Ending& ending : endings) {
      // In other words the name may be any.
      if (ending.has_escape) to_try_.push_back(ending.token);
    }
  }
}

JsonContextPtr JsonTokenMatcher::Masker::value_of_kind(size_t kind) {
  const JsonContextPtr& context = at().context;
  NewNames& names = matcher_.new_names_[context];
  const auto [found, is_new] = names.values.try_emplace(kind);
  if (is_new) {
    found->second = matcher_.frames().begin_value_of_kind(*context, names.kinds->goals(kind),
                                                          names.rests_behind);
  }
  return found->second;
}

void JsonTokenMatcher::Masker::try_key_suffixes(const StringTokens& tokens, const State& behind,
                                                const std::vector<size_t>& kinds, size_t kind) {
  const auto fits = [&](const StringTokens::Ending& ending) {
    return !ending.has_escape && kinds[ending.prefix] == kind;
  };
  const auto nodes = tokens.suffixes().nodes();
  for (uint32_t i = 0; i < nodes.size(); i = nodes[i].end) {
    // All begin with the quote.
    matcher_.states_.push_back(behind);
    matcher_.text_ += '"';
    if (nodes[i].token != TokenTrie::kNone) take_endings(tokens, nodes[i].token, false, fits);
    uint32_t second_name_end = 0;  // another name may be one that is used by then
    take_nodes(nodes, i + 1, nodes[i].end, 1, [&](uint32_t j) {
      if (at().phase == Phase::kInKey) second_name_end = std::max(second_name_end, nodes[j].end);
      if (nodes[j].token != TokenTrie::kNone) {
        take_endings(tokens, nodes[j].token, j < second_name_end, fits);
      }
      return j + 1;
    });
    matcher_.pop(1);
  }
}

void JsonTokenMatcher::Masker::try_listed(uint32_t node) {
  const JsonKeys& keys = *at().context->keys;
  const size_t written = matcher_.lexeme(at()).size();
  for (uint32_t i = at().listed_begin; i < at().listed_end; ++i) {
    const std::string_view spelled = keys.listed[i].spelled;
    try_name(spelled.substr(written, spelled.size() - 1 - written), node);
  }
}

void JsonTokenMatcher::Masker::try_special_names(uint32_t node) {
  const JsonContextPtr context = at().context;  // which has the keys
  const JsonKeys& keys = *context->keys;
  const std::string written = decode_json_string(matcher_.lexeme(at()));
  const std::span listed(keys.listed.begin() + at().listed_begin,
                         keys.listed.begin() + at().listed_end);
  const auto try_begun = [&](std::string_view name) {
    const std::string spelled = std::string(name) + '"';
    const bool is_tried = std::ranges::binary_search(listed, std::string_view(spelled), {},
                                                     &JsonKeys::Listed::spelled);
    if (!is_tried) try_name(name.substr(written.size()), node);
  };
  for_each_begun(keys.old, written, try_begun);
  for_each_begun(keys.with_dependents, written, try_begun);
  std::vector<std::string> coming;
  for (const auto& [way, rest] : matcher_.new_names_[context].rests_behind) {
    coming.insert(coming.end(), rest.names.begin(), rest.names.end());
  }
  std::ranges::sort(coming);
  coming.erase(std::unique(coming.begin(), coming.end()), coming.end());
  for (const std::string& name : coming) {
    const bool is_tried = std::ranges::binary_search(keys.old, std::string_view(name));
    if (!is_tried && name.starts_with(written)) try_begun(name);
  }
}

}  // namespace quire::grammar
