#include "grammar/tokens/string_tokens.h"

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
    uint16_t num_characters = 0;
    bool has_escape = false;
    size_t quote = 0;  // the place of the closing quote, where the string has ended
    bool has_ended = false;
  };
  StringLexer lexer;
  std::vector<Place> places(trie.max_token_bytes() + 1);
  places[depth_before].state = lexer.begin({StringTarget{}});
  std::vector<int32_t> inside;
  std::map<std::string, std::vector<Ending>> by_suffix;
  for (size_t i = begin; i < end;) {
    const TokenTrie::Node& at = nodes[i];
    Place place = places[at.depth - 1U];
    if (!place.has_ended) {
      place.has_escape |= at.byte == '\\';
      // Bytes that begin characters are counted, so a part of one at the end counts, too.
      const bool begins = (at.byte & 0xC0) != 0x80;
      const int32_t next = lexer.step(place.state, at.byte);
      if (next == StringLexer::kDead) {
        i = at.end;
        continue;
      }
      place.has_ended = next == StringLexer::kEnd;
      place.quote = at.depth - 1U;
      if (!place.has_ended && begins && !place.has_escape) ++place.num_characters;
      place.state = next;
    }
    places[at.depth] = place;
    for (int32_t token = at.token; token != TokenTrie::kNone; token = trie.next_alike(token)) {
      if (place.has_ended) {
        by_suffix[std::string(trie.bytes(token).substr(place.quote))].push_back(
            {token, place.has_escape, place.num_characters});
      } else {
        inside.push_back(token);
      }
    }
    ++i;
  }
  inside_ = TokenSet(std::move(inside), trie.num_tokens());
  std::vector<std::string> suffixes;
  for (auto& [suffix, endings] : by_suffix) {
    suffixes.push_back(suffix);
    endings_.push_back(std::move(endings));
  }
  suffixes_ = std::make_unique<const TokenTrie>(std::move(suffixes));
}

}  // namespace quire::grammar
