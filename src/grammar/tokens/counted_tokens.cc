#include "grammar/tokens/counted_tokens.h"

#include <map>

namespace quire::grammar {

CountedTokens::CountedTokens(std::span<const Token> tokens, size_t num_tokens) {
  // Nearly all numbers are small, and there are very many tokens.
  constexpr size_t kSmall = 1024;
  std::vector<std::vector<int32_t>> small(kSmall);
  std::map<uint32_t, std::vector<int32_t>> large;
  std::vector<int32_t> all;
  all.reserve(tokens.size());
  for (const Token& token : tokens) {
    (token.number < kSmall ? small[token.number] : large[token.number]).push_back(token.token);
    all.push_back(token.token);
  }
  const auto add = [&](uint32_t number, std::vector<int32_t>& alike) {
    if (!alike.empty()) buckets_.push_back({number, TokenSet(std::move(alike), num_tokens)});
  };
  for (uint32_t number = 0; number < kSmall; ++number) add(number, small[number]);
  for (auto& [number, alike] : large) add(number, alike);
  // One bucket is all of them.
  if (buckets_.size() > 1) all_ = TokenSet(std::move(all), num_tokens);
}

void CountedTokens::allow(uint64_t least, uint64_t most, TokenMask mask) const {
  if (buckets_.empty()) return;
  const bool takes_all = least <= buckets_.front().number && most >= buckets_.back().number;
  if (takes_all && buckets_.size() > 1) return all_.allow(mask);
  for (const Bucket& bucket : buckets_) {
    if (bucket.number > most) break;
    if (bucket.number >= least) bucket.tokens.allow(mask);
  }
}

size_t CountedTokens::bytes() const {
  size_t bytes = all_.bytes();
  for (const Bucket& bucket : buckets_) bytes += sizeof(bucket) + bucket.tokens.bytes();
  return bytes;
}

}  // namespace quire::grammar
