// The masks of ContextFreeMatcher.
#include <algorithm>
#include <array>

#include "grammar/tokens/context_free_matcher.h"

namespace quire::grammar {

// Waiting items of a place with the numbers of the places that they go back to.
void ContextFreeMatcher::number_places(size_t end) {
  // Most are known: only those behind the last one are not.
  size_t first = end;
  while (first > 0 && places_[first - 1].number == 0) --first;
  for (; first < end; ++first) {
    Place& place = places_[first];
    std::vector<std::array<uint64_t, 2>> items;
    for (const Item& item : place.waits) {
      const auto origin = static_cast<size_t>(item.origin);
      const uint64_t number = origin == first ? 0 : places_[origin].number;
      items.push_back({static_cast<uint64_t>(item.spot), number});
    }
    std::ranges::sort(items);
    // At the first place the root can be complete.
    PlaceMasks::Key key(1, first == 0 ? 1 : 0);
    for (const auto& [spot, number] : items) {
      key += static_cast<char32_t>(spot);
      append_number(key, number);
    }
    place.number = tables_->place_masks().number_of(key);
  }
}

PlaceMasks::Key ContextFreeMatcher::mask_key() {
  number_places(num_places_);
  std::vector<std::array<uint64_t, 3>> items;
  for (const Item& item : newest().texts) {
    const uint64_t number = places_[static_cast<size_t>(item.origin)].number;
    const bool is_new = static_cast<size_t>(item.origin) + 1 == num_places_;
    items.push_back(
        {static_cast<uint64_t>(item.spot), static_cast<uint64_t>(item.state), is_new ? 0 : number});
  }
  std::ranges::sort(items);
  PlaceMasks::Key key;
  append_number(key, newest().number);
  for (const auto& [spot, state, number] : items) {
    key += static_cast<char32_t>(spot);
    key += static_cast<char32_t>(state);
    append_number(key, number);
  }
  return key;
}

size_t ContextFreeMatcher::bytes_behind(const Item& text) const {
  const ContextFreeTables::Spot& spot = tables_->spot(text.spot);
  return tables_->spot(text.spot + 1).rest + after(text.origin, spot.owner);
}

PlaceMasks::MaskPtr ContextFreeMatcher::make_mask(const TokenTrie& trie) {
  auto made = std::make_shared<PlaceMasks::Mask>();
  made->tokens.resize(mask_words(trie.num_tokens()));
  mask_ending_ = 0;
  find_endings(num_places_);
  std::vector<uint32_t> exits;
  for (const Item& item : newest().texts) {
    const ContextFreeTables::Spot& spot = tables_->spot(item.spot);
    const DfaMasks::MasksPtr masks = tables_->masks(spot, item.state, trie);
    allow_all(masks->tokens, made->tokens);
    exits.insert(exits.end(), masks->exits.begin(), masks->exits.end());
    mask_ending_ =
        std::max(mask_ending_, tables_->endings(spot.text).largest_distance() + bytes_behind(item));
  }
  std::ranges::sort(exits);
  // A limit that all pass has each ending looked at.
  allow_below(trie, exits, kNoEnding - 1, made->tokens);
  made->most_ending_bytes = mask_ending_;
  return made;
}

void ContextFreeMatcher::allow_in_time(const TokenTrie& trie, size_t most_ending_bytes,
                                       TokenMask mask) {
  find_endings(num_places_);
  std::vector<uint32_t> exits;
  const std::vector<Item> texts = newest().texts;
  for (const Item& item : texts) {
    const ContextFreeTables::Spot& spot = tables_->spot(item.spot);
    const DfaMasks::MasksPtr masks = tables_->masks(spot, item.state, trie);
    exits.insert(exits.end(), masks->exits.begin(), masks->exits.end());
    const size_t behind = bytes_behind(item);
    if (behind > most_ending_bytes) continue;
    const DfaEndings& endings = tables_->endings(spot.text);
    walk_dfa(tables_->dfa(spot.text), item.state, trie,
             [&](const TokenTrie::Node& node, size_t, int32_t at) {
               if (endings.distance(at) <= most_ending_bytes - behind) trie.allow_node(node, mask);
               return true;
             });
  }
  std::ranges::sort(exits);
  allow_below(trie, exits, most_ending_bytes, mask);
}

size_t ContextFreeMatcher::allow_tokens(const TokenTrie& trie, size_t most_ending_bytes,
                                        TokenMask mask) {
  if (is_closed_) return ByteMatcher::allow_tokens(trie, most_ending_bytes, mask);
  const PlaceMasks::Key key = mask_key();
  PlaceMasks::MaskPtr known = tables_->place_masks().find(key, trie.id());
  bool lacks_tokens = false;
  if (known == nullptr) {
    mask_steps_ = 0;
    known = make_mask(trie);
    lacks_tokens = mask_steps_ > kMaxMaskSteps;
    if (!lacks_tokens) tables_->place_masks().keep(key, trie.id(), known);
  }
  if (known->most_ending_bytes <= most_ending_bytes) {
    allow_all(known->tokens, mask);
  } else {
    mask_steps_ = 0;
    allow_in_time(trie, most_ending_bytes, mask);
    lacks_tokens = mask_steps_ > kMaxMaskSteps;
  }
  mask_steps_ = kNoMask;
  if (!lacks_tokens) return known->most_ending_bytes;
  const std::string text = ending();
  trie.for_each_prefix(text, [&](int32_t token) {
    if (text.size() - trie.bytes(token).size() <= most_ending_bytes) allow(mask, token);
  });
  return kNoEnding;
}

}  // namespace quire::grammar
