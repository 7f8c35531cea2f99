#include "grammar/tokens/tag_matcher.h"

#include <algorithm>

namespace quire::grammar {
namespace {

// A limit that all pass, so that each ending is looked at.
constexpr size_t kAnyEnding = ByteMatcher::kNoEnding - 1;

}  // namespace

TagMatcher::TagMatcher(const TagTables& tables) : tables_(&tables) {
  Place& place = add_place();
  if (tables.has_free_text()) {
    add_next(place, 0);
  } else {
    place.is_end = tables.options().min_tags == 0;
    add_begin(place, 0, 0);
  }
  place.num_runs = runs_.size();
}

TagMatcher::TagMatcher(const TagMatcher& other)
    : ByteMatcher(other),
      tables_(other.tables_),
      places_(other.places_.begin(),
              other.places_.begin() + static_cast<std::ptrdiff_t>(other.num_places_)),
      num_places_(other.num_places_) {
  for (const Run& run : other.runs_) runs_.push_back({run.matcher->clone(), run.tag});
}

std::unique_ptr<ByteMatcher> TagMatcher::clone() const {
  return std::unique_ptr<ByteMatcher>(new TagMatcher(*this));
}

TagMatcher::Place& TagMatcher::add_place() {
  if (num_places_ == places_.size()) places_.emplace_back();
  Place& place = places_[num_places_++];
  place.alternatives.clear();
  place.pushed.clear();
  place.begun.clear();
  place.num_runs = runs_.size();
  place.is_end = false;
  return place;
}

bool TagMatcher::push(uint8_t byte) {
  Place& place = add_place();
  for (const Alternative& from : places_[num_places_ - 2].alternatives) take(from, byte, place);
  place.num_runs = runs_.size();
  if (place.alternatives.empty() && !place.is_end) {
    pop(1);
    return false;
  }
  return true;
}

void TagMatcher::take(const Alternative& from, uint8_t byte, Place& place) {
  switch (from.kind) {
    case Kind::kFreeText: {
      const int32_t next = tables_->free_text().step(from.at, byte);
      if (next != Dfa::kDead) add_free_text(place, next, from.count);
      return;
    }
    case Kind::kSeparator: {
      const std::string& separator = tables_->options().separator;
      const auto taken = static_cast<size_t>(from.at);
      if (separator[taken] != static_cast<char>(byte)) return;
      if (taken + 1 == separator.size()) {
        add_begin(place, 0, from.count);
      } else {
        add(place, {Kind::kSeparator, from.count, from.at + 1});
      }
      return;
    }
    case Kind::kBegin: {
      const int32_t next = tables_->step(from.at, byte);
      if (next >= 0) add_begin(place, next, from.count);
      return;
    }
    case Kind::kInner:
      if (!runs_[static_cast<size_t>(from.at)].matcher->push(byte)) return;
      place.pushed.push_back(from.at);
      add_inner(place, from.at, from.tag, from.count);
      return;
    case Kind::kEnd: {
      const std::string& end = tables_->tag(from.tag).end;
      if (end[static_cast<size_t>(from.at)] != static_cast<char>(byte)) return;
      add_end(place, from.tag, from.at + 1, from.count);
      return;
    }
  }
}

void TagMatcher::add(Place& place, const Alternative& alternative) {
  std::vector<Alternative>& all = place.alternatives;
  if (std::ranges::find(all, alternative) == all.end()) all.push_back(alternative);
}

void TagMatcher::add_free_text(Place& place, int32_t state, uint32_t count) {
  if (tables_->free_text().accepts(state)) {
    add_begin(place, tables_->node_behind(state), count);
    return;
  }
  place.is_end |= count >= tables_->options().min_tags && tables_->is_whole_text(state);
  add(place, {Kind::kFreeText, count, state});
}

void TagMatcher::add_begin(Place& place, int32_t node, uint32_t count) {
  if (!tables_->node(node).children.empty()) add(place, {Kind::kBegin, count, node});
  const std::pair begin(node, count);
  if (std::ranges::find(place.begun, begin) != place.begun.end()) return;
  place.begun.push_back(begin);
  for (const int32_t tag : tables_->node(node).complete) {
    const auto run = static_cast<int32_t>(runs_.size());
    runs_.push_back({tables_->tag(tag).inner->begin(), tag});
    add_inner(place, run, tag, count);
  }
}

void TagMatcher::add_inner(Place& place, int32_t run, int32_t tag, uint32_t count) {
  const ByteMatcher& matcher = *runs_[static_cast<size_t>(run)].matcher;
  if (!matcher.must_end()) add(place, {Kind::kInner, count, run, tag});
  if (matcher.can_end()) add_end(place, tag, 0, count);
}

void TagMatcher::add_end(Place& place, int32_t tag, int32_t taken, uint32_t count) {
  if (static_cast<size_t>(taken) == tables_->tag(tag).end.size()) {
    add_next(place, count + 1);
  } else {
    add(place, {Kind::kEnd, count, taken, tag});
  }
}

void TagMatcher::add_next(Place& place, uint32_t count) {
  const TagOptions& options = tables_->options();
  place.is_end |= count >= options.min_tags;
  if (count == options.max_tags) return;
  // Where any number may follow, ways that differ in what is behind them are one.
  if (options.max_tags == UINT32_MAX) count = std::min(count, options.min_tags);
  if (tables_->has_free_text()) {
    add_free_text(place, tables_->free_text().start(), count);
  } else if (options.separator.empty()) {
    add_begin(place, 0, count);
  } else {
    add(place, {Kind::kSeparator, count, 0});
  }
}

void TagMatcher::drop_long_ways(Place& place) const {
  std::ranges::stable_sort(place.alternatives, {},
                           [&](const Alternative& one) { return bytes_of(one); });
  place.alternatives.resize(kMaxAlternatives);
}

void TagMatcher::pop(size_t count) {
  for (; count > 0; --count) {
    for (const int32_t run : newest().pushed) runs_[static_cast<size_t>(run)].matcher->pop(1);
    --num_places_;
    runs_.resize(newest().num_runs);
  }
}

void TagMatcher::commit() {
  if (num_places_ == 1) return;
  std::swap(places_.front(), places_[num_places_ - 1]);
  num_places_ = 1;
  Place& place = places_.front();
  if (place.alternatives.size() > kMaxAlternatives) drop_long_ways(place);
  std::vector<Run> kept;
  for (Alternative& alternative : place.alternatives) {
    if (alternative.kind != Kind::kInner) continue;
    kept.push_back(std::move(runs_[static_cast<size_t>(alternative.at)]));
    kept.back().matcher->commit();
    alternative.at = static_cast<int32_t>(kept.size()) - 1;
  }
  runs_ = std::move(kept);
  place.pushed.clear();
  place.num_runs = runs_.size();
}

size_t TagMatcher::bytes_behind_inner(const Alternative& from) const {
  return tables_->tag(from.tag).end.size() + tables_->bytes_behind_tags(from.count + 1);
}

size_t TagMatcher::bytes_of(const Alternative& from) const {
  switch (from.kind) {
    case Kind::kFreeText:
      if (from.count >= tables_->options().min_tags) return tables_->broken_bytes(from.at);
      return tables_->bytes_to_tag_end(from.at) + tables_->bytes_behind_tags(from.count + 1);
    case Kind::kSeparator:
      return tables_->options().separator.size() - static_cast<size_t>(from.at) +
             tables_->node(0).best_bytes + tables_->bytes_behind_tags(from.count + 1);
    case Kind::kBegin:
      return tables_->node(from.at).best_bytes + tables_->bytes_behind_tags(from.count + 1);
    case Kind::kInner:
      return inner(from).ending_bytes() + bytes_behind_inner(from);
    case Kind::kEnd:
      return bytes_behind_inner(from) - static_cast<size_t>(from.at);
  }
  return SIZE_MAX;
}

std::string TagMatcher::ending_of(const Alternative& from) const {
  std::string text;
  switch (from.kind) {
    case Kind::kFreeText:
      if (from.count >= tables_->options().min_tags) {
        tables_->append_broken_bytes(from.at, text);
        return text;
      }
      tables_->append_free_text_and_tag(from.at, text);
      break;
    case Kind::kSeparator:
      text = tables_->options().separator.substr(static_cast<size_t>(from.at));
      tables_->append_rest_of_tag(0, text);
      break;
    case Kind::kBegin:
      tables_->append_rest_of_tag(from.at, text);
      break;
    case Kind::kInner:
      text = inner(from).ending() + tables_->tag(from.tag).end;
      break;
    case Kind::kEnd:
      text = tables_->tag(from.tag).end.substr(static_cast<size_t>(from.at));
      break;
  }
  return text + tables_->text_behind_tags(from.count + 1);
}

size_t TagMatcher::ending_bytes() const {
  if (newest().is_end) return 0;
  size_t bytes = SIZE_MAX;
  for (const Alternative& one : newest().alternatives) bytes = std::min(bytes, bytes_of(one));
  return bytes;
}

std::string TagMatcher::ending() const {
  if (newest().is_end) return {};
  return ending_of(*std::ranges::min_element(
      newest().alternatives, {}, [&](const Alternative& one) { return bytes_of(one); }));
}

void TagMatcher::push_only(const std::vector<Alternative>& alternatives) {
  add_place().alternatives = alternatives;
}

size_t TagMatcher::allow_tokens(const TokenTrie& trie, size_t most, TokenMask mask) {
  most = std::min(most, kAnyEnding);
  size_t longest = 0;
  const std::vector<Alternative> alternatives = newest().alternatives;
  std::vector<Alternative> literals;
  for (const Alternative& from : alternatives) {
    if (from.kind == Kind::kFreeText) {
      longest = std::max(longest, allow_free_text(from, trie, most, mask));
    } else if (from.kind == Kind::kInner) {
      longest = std::max(longest, allow_inner(from, trie, most, mask));
    } else {
      literals.push_back(from);
    }
  }
  if (literals.empty()) return longest;
  push_only(literals);
  longest = std::max(longest, ByteMatcher::allow_tokens(trie, most, mask));
  pop(1);
  return longest;
}

size_t TagMatcher::allow_free_text(const Alternative& from, const TokenTrie& trie, size_t most,
                                   TokenMask mask) {
  // Of a character that is not complete.
  constexpr size_t kMostBrokenBytes = 3;
  const size_t most_needed =
      from.count >= tables_->options().min_tags
          ? kMostBrokenBytes
          : tables_->most_to_tag_end() + tables_->bytes_behind_tags(from.count + 1);
  push_only({from});
  size_t longest = most_needed;
  if (most < most_needed) {
    longest = ByteMatcher::allow_tokens(trie, most, mask);
  } else {
    const auto masks = tables_->masks().get_before_end(tables_->free_text(), from.at, trie);
    allow_all(masks->tokens, mask);
    longest = std::max(longest, allow_below(trie, masks->exits, most, mask));
  }
  pop(1);
  return longest;
}

size_t TagMatcher::allow_inner(const Alternative& from, const TokenTrie& trie, size_t most,
                               TokenMask mask) {
  const size_t behind = bytes_behind_inner(from);
  size_t longest = 0;
  if (most >= behind) {
    longest = runs_[static_cast<size_t>(from.at)].matcher->allow_tokens(
        trie, most == kAnyEnding ? kNoEnding : most - behind, mask);
    if (longest != kNoEnding) longest += behind;
  }
  if (tables_->tag(from.tag).end.empty() && from.count + 1 == tables_->options().max_tags) {
    return longest;
  }
  // Tokens that go on behind the inner text.
  const std::vector<uint32_t> ends = inner_ends(from, trie);
  push_only({from});
  longest = std::max(longest, allow_below(trie, ends, most, mask));
  pop(1);
  return longest;
}

std::vector<uint32_t> TagMatcher::inner_ends(const Alternative& from, const TokenTrie& trie) {
  ByteMatcher& matcher = *runs_[static_cast<size_t>(from.at)].matcher;
  const std::string& end = tables_->tag(from.tag).end;
  const auto candidates = tables_->nodes_of_byte(
      trie, end.empty() ? TagTables::kAnyByte : static_cast<uint8_t>(end.front()));
  std::vector<uint32_t> ends;
  const size_t fewest = matcher.ending_bytes();
  std::string_view path;  // that has been pushed
  for (const uint32_t node : *candidates) {
    const size_t depth = trie.nodes()[node].depth - 1U;
    if (depth < fewest) continue;
    const std::string_view to = trie.path(node).substr(0, depth);
    const size_t shared = common_prefix(path, to);
    matcher.pop(path.size() - shared);
    size_t taken = shared;
    while (taken < depth && matcher.ending_bytes() <= depth - taken &&
           matcher.push(static_cast<uint8_t>(to[taken]))) {
      ++taken;
    }
    path = to.substr(0, taken);
    if (taken == depth && matcher.can_end()) ends.push_back(node);
  }
  matcher.pop(path.size());
  return ends;
}

}  // namespace quire::grammar
