#include "grammar/tokens/string_tokens.h"

#include <algorithm>
#include <map>

#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {

StringTokens::StringTokens(const TokenTrie& trie, uint32_t node) {
  const auto nodes = trie.nodes();
  const bool is_whole = node == TokenTrie::kRoot;
  const size_t begin = is_whole ? 0 : node + 1;
  const size_t end = is_whole ? nodes.size() : nodes[node].end;
  const size_t depth_before = is_whole ? 0 : nodes[node].depth;
  struct Place {
    int32_t state = 0;
    uint32_t num_characters = 0;
    bool has_escape = false;
    size_t quote = 0;  // the place of the closing quote, where the string has ended
    bool has_ended = false;
    uint32_t prefix = 0;  // then
  };
  StringLexer lexer;
  std::vector<Place> places(trie.max_token_bytes() + 1);
  places[depth_before].state = lexer.begin({StringTarget{}});
  CountedTokensMaker whole(trie.num_tokens());
  std::map<std::string, std::vector<Ending>> by_suffix;
  const auto add_inside = [&](int32_t token, const Place& place) {
    uint32_t to_end = 0;  // with the quote
    lexer.for_each_ending(place.state, [&](uint32_t, uint32_t bytes) { to_end = bytes; });
    const Inside inside = {token, place.num_characters, to_end - 1};
    if (place.has_escape) escaped_.push_back(inside);
    if (inside.unfinished_bytes == 0) {
      whole.add(inside.num_characters, token);
    } else {
      unfinished_.push_back(inside);
    }
  };
  for (size_t i = begin; i < end;) {
    const TokenTrie::Node& at = nodes[i];
    Place place = places[at.depth - 1U];
    if (!place.has_ended) {
      const bool begins = lexer.is_between_characters(place.state);
      const int32_t next = lexer.step(place.state, at.byte);
      if (next == StringLexer::kDead) {
        i = at.end;
        continue;
      }
      place.has_escape |= at.byte == '\\';
      place.has_ended = next == StringLexer::kEnd;
      place.quote = at.depth - 1U;
      if (place.has_ended) {
        place.prefix = static_cast<uint32_t>(prefixes_.size());
        prefixes_.emplace_back(trie.path(i).substr(depth_before, place.quote - depth_before));
      }
      if (!place.has_ended && begins) ++place.num_characters;
      place.state = next;
    }
    places[at.depth] = place;
    trie.for_each_token(at, [&](int32_t token) {
      if (place.has_ended) {
        by_suffix[std::string(trie.bytes(token).substr(place.quote))].push_back(
            {token, place.has_escape, place.num_characters, place.prefix});
      } else {
        add_inside(token, place);
      }
    });
    ++i;
  }
  whole_ = std::move(whole).make();
  std::vector<std::string> suffixes;
  for (auto& [suffix, endings] : by_suffix) {
    suffixes.push_back(suffix);
    endings_.push_back(std::move(endings));
  }
  suffixes_ = std::make_unique<const TokenTrie>(std::move(suffixes));
}

void StringTokens::allow_inside(uint64_t most_characters, TokenMask mask) const {
  whole_.allow(0, most_characters, mask);
  for (const Inside& inside : unfinished_) {
    if (inside.num_characters <= most_characters) allow(mask, inside.token);
  }
}

void StringTokens::allow_inside_in_time(uint64_t missing, uint64_t most_characters,
                                        uint64_t most_bytes, TokenMask mask) const {
  // A character that is missing takes a byte.
  whole_.allow(missing - std::min(missing, most_bytes), most_characters, mask);
  for (const Inside& inside : unfinished_) {
    const uint64_t characters = inside.num_characters;
    const uint64_t bytes = inside.unfinished_bytes + missing - std::min(missing, characters);
    if (characters <= most_characters && bytes <= most_bytes) allow(mask, inside.token);
  }
}

}  // namespace quire::grammar
