#include "grammar/tokens/free_text.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {
namespace {

// The one of two groups that fewer tokens have.
uint8_t rarer_group(uint8_t a, uint8_t b) {
  const auto weight = [](uint8_t group) {
    const bool is_common =
        group == ascii_group('a') || group == ascii_group('z') || group == ascii_group(' ');
    if (is_common) return 3;
    return group != kLikeSpace && group <= ascii_group('Z') ? 2 : 1;
  };
  return weight(a) < weight(b) ? a : b;
}

class FreeTextFinder {
 public:
  FreeTextFinder(const EscapedDfa& dfa, bool counts) : dfa_(dfa), counts_(counts) {
    using Alike = std::tuple<int, int, int, int, int, int>;
    std::vector<Alike> seen;
    for (int i = 0x20; i < 256; ++i) {
      const auto byte = static_cast<uint8_t>(i);
      Utf8Place place;
      if (!place.take(byte)) continue;
      const Alike alike(dfa_.dfa().table().classes[byte], byte_group(byte, 0), lead_of(byte),
                        place.more_bytes, place.least_next, place.most_next);
      if (std::ranges::find(seen, alike) != seen.end()) continue;
      seen.push_back(alike);
      first_bytes_.push_back(byte);
    }
  }

  // What is found of these groups.
  FreeText find(int32_t state, ByteGroups groups) {
    num_places_ = 0;
    while (groups != 0) {
      FreeText free{.groups = groups};
      const ByteGroups misfits = find_misfits(state, free);
      if (misfits == 0) return free;
      groups &= ~misfits;
    }
    return {};
  }

 private:
  struct Place {
    int32_t state = 0;
    Utf8Place utf8;
    uint8_t lead = 0;     // as in byte_group(), where that matters
    uint8_t entered = 0;  // the group that led there
  };
  // Of all that one try visits, over and over: where there are more, it seldom finds anything.
  static constexpr size_t kMostPlaces = 500;

  static uint8_t lead_of(uint8_t byte) { return leads_to_space(byte) ? byte : uint8_t{0}; }

  static uint64_t key_of(const Place& at) {
    return uint64_t{static_cast<uint32_t>(at.state)} << 32 | uint64_t{at.utf8.more_bytes} << 24 |
           uint64_t{at.utf8.least_next} << 16 | uint64_t{at.utf8.most_next} << 8 | at.lead;
  }

  // Follows all text of the groups. Returns those of them that do not fit, as far as it finds them
  // at once; 0 where all do.
  ByteGroups find_misfits(int32_t state, FreeText& free) {
    std::vector<Place> todo(1);
    todo.front().state = state;
    std::unordered_set<uint64_t> seen = {key_of(todo.front())};
    bool has_number = false;
    for (size_t i = 0; i < todo.size(); ++i) {
      if (++num_places_ > kMostPlaces) return free.groups;
      const Place from = todo[i];
      ByteGroups misfits = 0;
      const auto take = [&](uint8_t byte) {
        Place to = from;
        if (!to.utf8.take(byte)) return;
        const uint8_t group = byte_group(byte, from.lead);
        if ((free.groups & group_bit(group)) == 0) return;
        to.state = dfa_.dfa().step(from.state, byte);
        bool fits = to.state != Dfa::kDead;
        if (fits && counts_) {
          const uint32_t number = dfa_.num_characters(to.state);
          if (!has_number) free.num_characters = number;
          has_number = true;
          fits = number == free.num_characters;
        }
        if (!fits) {
          misfits |= group_bit(i == 0 ? group : rarer_group(group, from.entered));
          return;
        }
        free.is_endless &= dfa_.num_texts(to.state) == UINT32_MAX;
        to.lead = from.utf8.more_bytes == 0 ? lead_of(byte) : uint8_t{0};
        to.entered = group;
        if (seen.insert(key_of(to)).second) todo.push_back(to);
      };
      if (from.utf8.more_bytes == 0) {
        // A letter decides how many characters have to follow.
        if (i == 0) take('z');
        for (const uint8_t byte : first_bytes_) take(byte);
      } else {
        for (int byte = 0x80; byte < 0xC0; ++byte) take(static_cast<uint8_t>(byte));
      }
      if (misfits != 0) return misfits;
    }
    return 0;
  }

  const EscapedDfa& dfa_;
  bool counts_;
  std::vector<uint8_t> first_bytes_;  // of characters, one for all that are alike
  size_t num_places_ = 0;
};

}  // namespace

FreeText find_free_text(const EscapedDfa& dfa, int32_t state, bool counts) {
  FreeTextFinder finder(dfa, counts);
  FreeText free = finder.find(state, kPlainGroups);
  if ((free.groups & kOfManyTokens) != 0) return free;
  // White space begins very many tokens, so other groups are dropped before it. Where it ends words
  // that a pattern has few of, none may be left that way, and very many without it.
  constexpr ByteGroups kSpaces = group_bit(ascii_group(' ')) | group_bit(kLikeSpace);
  return finder.find(state, kPlainGroups & ~kSpaces);
}

}  // namespace quire::grammar
