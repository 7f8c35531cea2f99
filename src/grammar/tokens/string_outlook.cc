// What any text that follows in a JSON string leads to.
#include <algorithm>
#include <set>

#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {

const StringLexer::Outlook& StringLexer::outlook(int32_t state, TextKind kind) {
  const uint64_t key = outlook_key(state, kind);
  if (const auto found = outlooks_.find(key); found != outlooks_.end()) return found->second;
  num_bytes_ += sizeof(Outlook) + 48;
  const Outlook found = find_outlook(state, kind);
  states_[static_cast<size_t>(state)].known_outlooks |=
      static_cast<uint8_t>(1U << static_cast<unsigned>(kind));
  return outlooks_.emplace(key, found).first->second;
}

const StringLexer::FreeTextOfAll& StringLexer::free_text(int32_t state, bool counts) {
  auto& kept = states_[static_cast<size_t>(state)].free_text[counts ? 1 : 0];
  if (kept == nullptr) {
    kept = std::make_unique<const FreeTextOfAll>(find_free_text_of_all(state, counts));
    num_bytes_ += sizeof(FreeTextOfAll) + kept->needs.size() * sizeof(kept->needs[0]);
  }
  return *kept;
}

StringLexer::FreeTextOfAll StringLexer::find_free_text_of_all(int32_t state, bool counts) const {
  if (!is_between_characters(state)) return {};
  FreeTextOfAll all{.groups = kPlainGroups, .is_endless = false};
  for (const At& at : states_[static_cast<size_t>(state)].targets) {
    const StringTarget& target = source(at);
    FreeText free{.groups = kPlainGroups};
    if (target.dfa) free = find_free_text(*target.dfa, at.state, counts);
    all.groups &= free.groups;
    all.is_endless |= free.is_endless;
    all.needs.emplace_back(at.source, free.num_characters);
  }
  return (all.groups & kOfManyTokens) != 0 ? all : FreeTextOfAll();
}

const std::vector<uint8_t>& StringLexer::different_bytes(int32_t state, TextKind kind) {
  const State& from = states_[static_cast<size_t>(state)];
  std::vector<uint32_t> key = {static_cast<uint32_t>(kind), from.place.more_bytes,
                               from.place.least_next, from.place.most_next};
  for (const At& at : from.targets) key.push_back(at.source);
  const auto [found, is_new] = different_bytes_.try_emplace(std::move(key));
  std::vector<uint8_t>& bytes = found->second;
  if (!is_new) return bytes;
  std::set<std::vector<uint16_t>> seen;
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    Utf8Place place = {from.place.more_bytes, from.place.least_next, from.place.most_next};
    if (text_kind(byte) > kind || !place.take(byte)) continue;
    std::vector<uint16_t> alike = {place.more_bytes, place.least_next, place.most_next};
    for (const At& at : from.targets) {
      if (source(at).dfa) alike.push_back(source(at).dfa->dfa().table().classes[byte]);
    }
    if (seen.insert(std::move(alike)).second) bytes.push_back(byte);
  }
  return bytes;
}

StringLexer::Outlook StringLexer::find_outlook(int32_t state, TextKind kind) {
  // Enough for a state and those within its characters a few times, and quickly found.
  constexpr size_t kMostStates = 48;
  Outlook outlook{.bytes = UINT32_MAX};
  if (states_[static_cast<size_t>(state)].place.mode != Mode::kText) return {};
  const size_t num_targets = states_[static_cast<size_t>(state)].targets.size();
  std::vector<uint32_t> needs;
  for_each_need(state, [&](uint32_t, uint32_t more) { needs.push_back(more); });
  std::vector<std::pair<int32_t, uint32_t>> todo = {{state, 0}};  // and how many bytes away
  for (size_t i = 0; i < todo.size(); ++i) {
    const auto [from, distance] = todo[i];
    if (i == kMostStates) {
      outlook.bytes = distance;
      return outlook;
    }
    for (const uint8_t byte : different_bytes(from, kind)) {
      const int32_t next = step(from, byte);
      if (next == kDead || states_[static_cast<size_t>(next)].targets.size() < num_targets) {
        outlook.bytes = distance;
        return outlook;
      }
      outlook.is_endless &= is_endless(next);
      size_t target = 0;  // all are left, in their order
      for_each_need(next, [&](uint32_t, uint32_t more) {
        outlook.needs_nothing &= more == 0;
        outlook.needs_as_much &= more == needs[target++];
      });
      const bool is_new =
          std::ranges::find(todo, next, [](const auto& one) { return one.first; }) == todo.end();
      if (is_new) todo.emplace_back(next, distance + 1);
    }
  }
  return outlook;
}

}  // namespace quire::grammar
