#include "grammar/tokens/token_trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/utf8.h"
#include "grammar/tokens/string_tokens.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

uint64_t next_trie_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < most && a[length] == b[length]) ++length;
  return length;
}

TokenTrie::TokenTrie(std::vector<std::string> tokens)
    : id_(next_trie_id()),
      tokens_(std::move(tokens)),
      alike_(tokens_.size(), kNone),
      string_tokens_(std::make_unique<StringTokensStore>()) {
  std::vector<int32_t> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  std::vector<size_t> open;  // the nodes of the newest token's bytes
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view before;
  for (const int32_t token : order) {
    const std::string_view text = bytes(token);
    if (text.empty()) continue;
    if (text.size() > UINT16_MAX) {
      throw Error(fmt::format("Token {} has {} bytes; at most {} are supported.", token,
                              text.size(), UINT16_MAX));
    }
    max_token_bytes_ = std::max(max_token_bytes_, text.size());
    close_to(common_prefix(before, text));
    for (size_t i = open.size(); i < text.size(); ++i) {
      open.push_back(nodes_.size());
      nodes_.push_back(
          {.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    Node& node = nodes_[open.back()];
    alike_[static_cast<size_t>(token)] = node.token;
    node.is_shared = node.token != kNone;
    node.token = token;
    before = text;
  }
  close_to(0);
  first_.fill(kNoNode);
  for (uint32_t i = 0; i < nodes_.size(); i = nodes_[i].end) first_[nodes_[i].byte] = i;
  order_tokens();
  find_kinds();
  find_groups();
}

void TokenTrie::order_tokens() {
  below_.resize(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    below_[i].first_token = static_cast<uint32_t>(order_.size());
    for (int32_t token = nodes_[i].token; token != kNone; token = next_alike(token)) {
      order_.push_back(token);
      characters_.push_back(static_cast<uint16_t>(num_characters(bytes(token))));
    }
  }
}

std::pair<size_t, size_t> TokenTrie::range_below(uint32_t node) const {
  size_t begin = below_[node].first_token;
  for (int32_t token = nodes_[node].token; token != kNone; token = next_alike(token)) ++begin;
  const uint32_t end_node = nodes_[node].end;
  const size_t end = end_node < nodes_.size() ? below_[end_node].first_token : order_.size();
  return {begin, end};
}

std::span<const int32_t> TokenTrie::tokens_below(uint32_t node) const {
  const auto [begin, end] = range_below(node);
  return std::span(order_).subspan(begin, end - begin);
}

std::span<const uint16_t> TokenTrie::characters_below(uint32_t node) const {
  const auto [begin, end] = range_below(node);
  return std::span(characters_).subspan(begin, end - begin);
}

void TokenTrie::find_kinds() {
  // Of the nodes on the way, and whether the bytes up to there are UTF-8 from a character's begin
  // on; ASCII is one.
  std::vector<size_t> open;
  std::vector<Utf8Place> places;
  std::vector<TextKind> kinds(nodes_.size());  // of each node's own byte
  std::vector<uint32_t> parents(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    open.resize(node.depth - 1U);
    places.resize(node.depth - 1U);
    Utf8Place place = places.empty() ? Utf8Place() : places.back();
    kinds[i] = place.take(node.byte) ? text_kind(node.byte) : TextKind::kOther;
    if (kinds[i] == TextKind::kOther) place = {};
    parents[i] = open.empty() ? kRoot : static_cast<uint32_t>(open.back());
    open.push_back(i);
    places.push_back(place);
    below_[i].kind = TextKind::kLower;
  }
  // What is below comes behind.
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (parents[i] == kRoot) continue;
    Below& above = below_[parents[i]];
    above.kind = std::max({above.kind, kinds[i], below_[i].kind});
    above.most_bytes = std::max<uint16_t>(above.most_bytes, below_[i].most_bytes + 1);
  }
}

void TokenTrie::find_groups() {
  std::vector<uint32_t> open;                   // the nodes on the way
  std::vector<GroupReader> readers;             // behind each of them
  std::vector<ByteGroups> own(nodes_.size());   // of each node's byte
  std::vector<ByteGroups> path(nodes_.size());  // of the bytes up to each node
  std::vector<uint32_t> parents(nodes_.size(), kRoot);
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    open.resize(node.depth - 1U);
    readers.resize(node.depth - 1U);
    if (!open.empty()) parents[i] = open.back();
    GroupReader reader = readers.empty() ? GroupReader() : readers.back();
    own[i] = group_bit(reader.take(node.byte));
    path[i] = own[i] | (open.empty() ? 0 : path[open.back()]);
    open.push_back(i);
    readers.push_back(reader);
  }
  groups_through_ = path;
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (parents[i] == kRoot) continue;
    groups_through_[parents[i]] |= groups_through_[i];
    below_[parents[i]].groups |= own[i] | below_[i].groups;
  }
  const size_t num_words = mask_words(tokens_.size());
  with_group_.assign(kNumByteGroups * num_words, 0);
  // No mask has those without bytes.
  const std::span none = std::span(with_group_).subspan(kOtherBytes * num_words, num_words);
  std::ranges::fill(none, UINT32_MAX);
  token_groups_.reserve(order_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (int32_t token = nodes_[i].token; token != kNone; token = next_alike(token)) {
      token_groups_.push_back(path[i]);
      none[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (static_cast<size_t>(token) % 32));
      for (uint8_t group = 0; group < kNumByteGroups; ++group) {
        if ((path[i] & group_bit(group)) == 0) continue;
        allow(std::span(with_group_).subspan(group * num_words, num_words), token);
      }
    }
  }
}

void TokenTrie::allow_groups(ByteGroups groups, TokenMask mask) const {
  const size_t num_words = mask_words(tokens_.size());
  std::vector<uint32_t> without(num_words);
  for (uint8_t group = 0; group < kNumByteGroups; ++group) {
    if ((groups & group_bit(group)) != 0) continue;
    const uint32_t* with = &with_group_[group * num_words];
    for (size_t i = 0; i < num_words; ++i) without[i] |= with[i];
  }
  for (size_t i = 0; i < num_words; ++i) mask[i] |= ~without[i];
}

TokenTrie::~TokenTrie() = default;

TokenSet::TokenSet(std::vector<int32_t> tokens, size_t num_tokens) {
  if (tokens.size() < mask_words(num_tokens)) {
    few_ = std::move(tokens);
    return;
  }
  bits_.resize(mask_words(num_tokens));
  for (const int32_t token : tokens) grammar::allow(bits_, token);
}

uint32_t TokenTrie::child(uint32_t node, uint8_t byte) const {
  if (node == kRoot) return first_[byte];
  for (uint32_t i = node + 1; i < nodes_[node].end; i = nodes_[i].end) {
    if (nodes_[i].byte == byte) return i;
  }
  return kNoNode;
}

const StringTokens& TokenTrie::string_tokens(uint32_t node) const {
  return string_tokens_->at(*this, node);
}

std::string_view TokenTrie::path(size_t node) const {
  // The first tokens behind a node are below it.
  size_t i = node;
  while (nodes_[i].token == kNone) ++i;
  return bytes(nodes_[i].token).substr(0, nodes_[node].depth);
}

int32_t TokenTrie::longest(std::string_view text) const {
  int32_t found = kNone;
  size_t bytes_found = 0;
  for_each_prefix(text, [&](int32_t token) {
    // The first of those that are alike.
    if (bytes(token).size() == bytes_found) return;
    bytes_found = bytes(token).size();
    found = token;
  });
  return found;
}

size_t TokenTrie::count_longest(std::string_view text) const {
  size_t count = 0;
  for (; !text.empty(); ++count) {
    const int32_t token = longest(text);
    if (token == kNone) return SIZE_MAX;
    text.remove_prefix(bytes(token).size());
  }
  return count;
}

}  // namespace quire::grammar
