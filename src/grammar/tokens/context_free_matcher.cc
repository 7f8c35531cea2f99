#include "grammar/tokens/context_free_matcher.h"

#include <algorithm>

namespace quire::grammar {

ContextFreeMatcher::ContextFreeMatcher(const ContextFreeTables& tables) : tables_(&tables) {
  scratch_.predicted.resize(static_cast<size_t>(tables.num_rules()));
  begin_items();
  predict(tables.root());
  close();
}

ContextFreeMatcher::ContextFreeMatcher(const ContextFreeMatcher& other)
    : ByteMatcher(other),
      tables_(other.tables_),
      places_(other.places_.begin(),
              other.places_.begin() + static_cast<std::ptrdiff_t>(other.num_places_)),
      num_places_(other.num_places_),
      committed_(other.committed_),
      num_items_(other.num_items_),
      num_known_(other.num_known_),
      used_places_(other.used_places_),
      bytes_(other.bytes_),
      known_ending_(other.known_ending_),
      is_closed_(other.is_closed_),
      closing_(other.closing_),
      closed_(other.closed_) {
  scratch_.predicted.resize(other.scratch_.predicted.size());
}

std::unique_ptr<ByteMatcher> ContextFreeMatcher::clone() const {
  return std::unique_ptr<ByteMatcher>(new ContextFreeMatcher(*this));
}

void ContextFreeMatcher::begin_items() {
  scratch_.items.clear();
  scratch_.steps = 0;
  if (++scratch_.round != 0) return;
  std::ranges::fill(scratch_.slots, 0);
  std::ranges::fill(scratch_.predicted, 0);
  scratch_.round = 1;
}

void ContextFreeMatcher::predict(int32_t rule) {
  uint32_t& round = scratch_.predicted[static_cast<size_t>(rule)];
  if (round == scratch_.round) return;
  round = scratch_.round;
  const auto here = static_cast<int32_t>(num_places_);
  for (const int32_t spot : tables_->beginnings(rule)) add(spot, here);
}

void ContextFreeMatcher::add(int32_t spot, int32_t origin) {
  const ContextFreeTables::Spot& at = tables_->spot(spot);
  // Productions of one rule that end together complete it once.
  if (at.rule == ContextFreeTables::kEnd) spot = tables_->end_of(at.owner);
  const int32_t text = at.text;
  add_item({spot, origin, text < 0 ? 0 : tables_->dfa(text).start()});
}

void ContextFreeMatcher::grow_slots() {
  scratch_.slots.assign(std::max<size_t>(256, scratch_.slots.size() * 2), 0);
  std::vector<Item> items = std::move(scratch_.items);
  scratch_.items.clear();
  scratch_.items.reserve(items.size() * 2);
  for (const Item& item : items) add_item(item);
}

void ContextFreeMatcher::add_item(const Item& item) {
  ++scratch_.steps;
  std::vector<uint64_t>& slots = scratch_.slots;
  if (scratch_.items.size() * 2 >= slots.size()) grow_slots();
  uint64_t hash = static_cast<uint32_t>(item.spot) * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ static_cast<uint32_t>(item.origin)) * 0xC4CEB9FE1A85EC53ULL;
  hash = (hash ^ static_cast<uint32_t>(item.state)) * 0x9E3779B97F4A7C15ULL;
  const uint64_t round = uint64_t{scratch_.round} << 32;
  for (size_t i = (hash >> 20) & (slots.size() - 1);; i = (i + 1) & (slots.size() - 1)) {
    if (slots[i] < round) {
      slots[i] = round | scratch_.items.size();
      scratch_.items.push_back(item);
      return;
    }
    if (scratch_.items[static_cast<uint32_t>(slots[i])] == item) return;
  }
}

const ContextFreeMatcher::Group* ContextFreeMatcher::group_of(const Place& place,
                                                              int32_t rule) const {
  const auto found = std::ranges::lower_bound(place.groups, rule, {}, &Group::rule);
  return found == place.groups.end() || found->rule != rule ? nullptr : &*found;
}

void ContextFreeMatcher::complete(int32_t rule, int32_t origin) {
  const Place& place = places_[static_cast<size_t>(origin)];
  const Group* group = group_of(place, rule);
  if (group == nullptr) return;
  for (uint32_t i = group->begin; i < group->end; ++i) {
    add(place.waits[i].spot + 1, place.waits[i].origin);
  }
}

void ContextFreeMatcher::close() {
  const auto here = static_cast<int32_t>(num_places_);
  bool is_end = false;
  for (size_t i = 0; i < scratch_.items.size(); ++i) {
    const Item item = scratch_.items[i];
    const ContextFreeTables::Spot& spot = tables_->spot(item.spot);
    if (spot.rule == ContextFreeTables::kEnd) {
      is_end |= spot.owner == tables_->root() && item.origin == 0;
      // What can be empty is passed over where it is awaited.
      if (item.origin != here) complete(spot.owner, item.origin);
      continue;
    }
    const bool is_passed =
        spot.rule >= 0 ? spot.can_be_empty : tables_->dfa(spot.text).accepts(item.state);
    if (spot.rule >= 0) predict(spot.rule);
    if (is_passed) add(item.spot + 1, item.origin);
  }
  Place& place = add_place();
  place.is_end = is_end;
  place.is_costly = here > 0 && scratch_.steps > kMaxByteSteps + 4 * tables_->num_spots();
  sort_items(place);
  num_items_ += place.texts.size() + place.waits.size();
}

ContextFreeMatcher::Place& ContextFreeMatcher::add_place() {
  if (num_places_ == places_.size()) places_.emplace_back();
  Place& place = places_[num_places_++];
  place.texts.clear();
  place.waits.clear();
  place.groups.clear();
  place.number = 0;
  return place;
}

void ContextFreeMatcher::sort_items(Place& place) {
  for (const Item& item : scratch_.items) {
    const ContextFreeTables::Spot& spot = tables_->spot(item.spot);
    if (spot.rule >= 0) {
      place.waits.push_back(item);
    } else if (spot.rule == ContextFreeTables::kText &&
               tables_->endings(spot.text).goes_on(item.state)) {
      place.texts.push_back(item);
    }
  }
  const auto rule_of = [&](const Item& item) { return tables_->spot(item.spot).rule; };
  std::ranges::sort(place.waits, {}, rule_of);
  for (uint32_t i = 0; i < place.waits.size(); ++i) {
    const int32_t rule = rule_of(place.waits[i]);
    if (place.groups.empty() || place.groups.back().rule != rule) {
      place.groups.push_back({.rule = rule, .begin = i, .end = i});
    }
    place.groups.back().end = i + 1;
  }
}

bool ContextFreeMatcher::push(uint8_t byte) {
  if (is_closed_) return push_ending(byte);
  if (mask_steps_ != kNoMask && mask_steps_ > kMaxMaskSteps) return false;
  begin_items();
  for (const Item& item : newest().texts) {
    const int32_t next = tables_->dfa(tables_->spot(item.spot).text).step(item.state, byte);
    if (next != Dfa::kDead) add_item({item.spot, item.origin, next});
  }
  if (scratch_.items.empty()) return false;
  close();
  if (mask_steps_ != kNoMask) mask_steps_ += scratch_.steps;
  bytes_ += static_cast<char>(byte);
  return true;
}

bool ContextFreeMatcher::push_ending(uint8_t byte) {
  if (closed_ == closing_.size() || closing_[closed_] != static_cast<char>(byte)) return false;
  ++closed_;
  return true;
}

void ContextFreeMatcher::pop(size_t count) {
  if (is_closed_) {
    closed_ -= count;
    return;
  }
  bytes_.resize(bytes_.size() - count);
  for (; count > 0; --count) {
    const Place& place = places_[--num_places_];
    num_items_ -= place.texts.size() + place.waits.size();
  }
  num_known_ = std::min(num_known_, num_places_);
}

void ContextFreeMatcher::commit() {
  if (is_closed_ || bytes_.empty()) return;
  if (known_ending_ && known_ending_->starts_with(bytes_)) {
    known_ending_->erase(0, bytes_.size());
  } else {
    known_ending_.reset();
  }
  bytes_.clear();
  bool is_costly = num_items_ > kMaxItems;
  for (; committed_ + 1 < num_places_; ++committed_) {
    is_costly |= places_[committed_ + 1].is_costly;
    // Bytes come behind the newest place only.
    std::vector<Item>& texts = places_[committed_].texts;
    num_items_ -= texts.size();
    texts = {};
  }
  if (is_costly) {
    go_to_end();
  } else if (num_places_ > used_places_) {
    drop_unused_places();
  }
}

void ContextFreeMatcher::go_to_end() {
  closing_ = known_ending_ ? *known_ending_ : ending_of(num_places_ - 1);
  is_closed_ = true;
  known_ending_.reset();
  places_.clear();
  num_places_ = committed_ = num_items_ = num_known_ = 0;
}

void ContextFreeMatcher::drop_unused_places() {
  std::vector<bool> is_used(num_places_);
  is_used[0] = is_used[num_places_ - 1] = true;
  for (size_t i = num_places_; i-- > 0;) {
    if (!is_used[i]) continue;
    for (const Item& item : places_[i].texts) is_used[static_cast<size_t>(item.origin)] = true;
    for (const Item& item : places_[i].waits) is_used[static_cast<size_t>(item.origin)] = true;
  }
  std::vector<int32_t> renumbered(num_places_);
  size_t kept = 0;
  size_t known = 0;
  num_items_ = 0;
  for (size_t i = 0; i < num_places_; ++i) {
    if (!is_used[i]) continue;
    renumbered[i] = static_cast<int32_t>(kept);
    Place& place = places_[kept];
    if (kept != i) std::swap(place, places_[i]);
    for (std::vector<Item>* items : {&place.texts, &place.waits}) {
      for (Item& item : *items) item.origin = renumbered[static_cast<size_t>(item.origin)];
      num_items_ += items->size();
    }
    ++kept;
    if (i < num_known_) known = kept;
  }
  num_known_ = known;
  num_places_ = kept;
  committed_ = kept - 1;
  used_places_ = std::max<size_t>(64, kept * 2);
  places_.resize(kept);
}

bool ContextFreeMatcher::can_end() const {
  return is_closed_ ? closed_ == closing_.size() : newest().is_end;
}

bool ContextFreeMatcher::must_end() const {
  return can_end() && (is_closed_ || newest().texts.empty());
}

size_t ContextFreeMatcher::after(int32_t origin, int32_t rule) const {
  if (origin == 0 && rule == tables_->root()) return 0;
  return group_of(places_[static_cast<size_t>(origin)], rule)->after;
}

void ContextFreeMatcher::find_endings(size_t end) const {
  for (; num_known_ < end; ++num_known_) {
    Place& place = places_[num_known_];
    for (Group& group : place.groups) group.after = SIZE_MAX;
    // Items of one place wait for each other, so until nothing changes. Only what is shorter
    // replaces an ending: so the best ones never wait for each other in a circle.
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (Group& group : place.groups) {
        for (uint32_t i = group.begin; i < group.end; ++i) {
          const Item& item = place.waits[i];
          const size_t behind = after(item.origin, tables_->spot(item.spot).owner);
          if (behind == SIZE_MAX) continue;
          const size_t bytes = tables_->spot(item.spot + 1).rest + behind;
          if (bytes >= group.after) continue;
          group.after = bytes;
          group.best = i;
          has_changed = true;
        }
      }
    }
  }
}

size_t ContextFreeMatcher::item_ending(const Item& item) const {
  const ContextFreeTables::Spot& spot = tables_->spot(item.spot);
  const size_t rest = spot.rule >= 0 ? spot.rest
                                     : tables_->endings(spot.text).distance(item.state) +
                                           tables_->spot(item.spot + 1).rest;
  return rest + after(item.origin, spot.owner);
}

const ContextFreeMatcher::Item* ContextFreeMatcher::best_item(size_t place, size_t& bytes) const {
  find_endings(place);
  const Item* best = nullptr;
  bytes = SIZE_MAX;
  for (const std::vector<Item>* items : {&places_[place].texts, &places_[place].waits}) {
    for (const Item& item : *items) {
      // What begins here is a part of what waits for it here.
      if (static_cast<size_t>(item.origin) == place) continue;
      const size_t item_bytes = item_ending(item);
      if (item_bytes >= bytes) continue;
      bytes = item_bytes;
      best = &item;
    }
  }
  return best;
}

size_t ContextFreeMatcher::ending_bytes() const {
  const size_t bytes = find_ending_bytes();
  mask_ending_ = std::max(mask_ending_, bytes);
  return bytes;
}

size_t ContextFreeMatcher::find_ending_bytes() const {
  if (is_closed_) return closing_.size() - closed_;
  if (newest().is_end) return 0;
  if (num_places_ == 1) return tables_->fewest_bytes(tables_->root());
  size_t bytes = 0;
  best_item(num_places_ - 1, bytes);
  return bytes;
}

std::string ContextFreeMatcher::ending() const {
  if (is_closed_) return closing_.substr(closed_);
  // What was promised, whose rest may be followed already.
  if (bytes_.empty() && known_ending_) return *known_ending_;
  std::string text = ending_of(num_places_ - 1);
  if (bytes_.empty()) known_ending_ = text;
  return text;
}

std::string ContextFreeMatcher::ending_of(size_t place) const {
  std::string text;
  if (places_[place].is_end) return text;
  if (place == 0) {
    tables_->append_shortest(tables_->root(), text);
    return text;
  }
  size_t bytes = 0;
  Item item = *best_item(place, bytes);
  if (tables_->spot(item.spot).rule < 0) {
    tables_->endings(tables_->spot(item.spot).text).append(item.state, text);
    ++item.spot;
  }
  for (;;) {
    tables_->append_rest(item.spot, text);
    const int32_t rule = tables_->spot(item.spot).owner;
    if (item.origin == 0 && rule == tables_->root()) return text;
    const Place& origin = places_[static_cast<size_t>(item.origin)];
    item = origin.waits[group_of(origin, rule)->best];
    ++item.spot;
  }
}

}  // namespace quire::grammar
