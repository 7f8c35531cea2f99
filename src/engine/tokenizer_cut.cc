#include "engine/tokenizer_cut.h"

#include <cstddef>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/utf8.h"

namespace quire {
namespace {

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && !begins_character(static_cast<uint8_t>(text[at]));
}

// Whether some token has more bytes and begins with all of these.
bool begins_a_token(const grammar::TokenTrie& trie, std::string_view bytes) {
  uint32_t node = grammar::TokenTrie::kRoot;
  for (const char c : bytes) {
    node = trie.child(node, static_cast<uint8_t>(c));
    if (node == grammar::TokenTrie::kNoNode) return false;
  }
  return trie.nodes()[node].end > node + 1;
}

// The token of `text` that begins at byte `at`, if one does.
std::optional<int32_t> token_at(const Tokenizer& tokenizer, const grammar::TokenTrie& trie,
                                std::string_view text, size_t at) {
  const TextSpan all[] = {{0, text.size()}};
  size_t end = 0;
  bool is_first = true;
  for (const int32_t token : tokenizer.encode(text, all, false)) {
    std::string_view bytes = trie.bytes(token);
    if (end == at) {
      return !bytes.empty() && text.substr(at).starts_with(bytes) ? std::optional(token)
                                                                  : std::nullopt;
    }
    // Tokenizers may put a space before a text.
    if (is_first && !text.starts_with(bytes) && bytes.starts_with(' ')) bytes.remove_prefix(1);
    is_first = false;
    if (!text.substr(end).starts_with(bytes)) return std::nullopt;
    end += bytes.size();
    if (end > at) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int32_t> next_token(const Tokenizer& tokenizer, const grammar::TokenTrie& trie,
                                  const KnownText& known) {
  std::string whole(known.before);
  whole += known.ahead;
  const size_t at = known.before.size();
  const size_t valid = tokenizer_internal::find_invalid_utf8(whole).value_or(whole.size());
  if (valid <= at) return std::nullopt;
  const std::string_view text = std::string_view(whole).substr(0, valid);
  const std::optional<int32_t> token = token_at(tokenizer, trie, text, at);
  if (!token || (known.ends && valid == whole.size())) return token;
  // Whatever follows, some token goes on beyond the text, or the text ends with one. What comes
  // before that token is cut as if nothing followed. So each place where it may begin has to agree.
  const size_t longest = trie.max_token_bytes();
  for (size_t place = text.size() > longest ? text.size() - longest : 0; place < text.size();
       ++place) {
    if (place < at || !begins_a_token(trie, text.substr(place))) continue;
    size_t end = place;
    while (is_inside_character(text, end)) --end;
    if (end <= at || token_at(tokenizer, trie, text.substr(0, end), at) != token) {
      return std::nullopt;
    }
  }
  return token;
}

}  // namespace quire
