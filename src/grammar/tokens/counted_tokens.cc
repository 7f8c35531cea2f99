#include "grammar/tokens/counted_tokens.h"

#include <algorithm>

namespace quire::grammar {

CountedTokens::CountedTokens(std::vector<Token> tokens, size_t num_tokens) {
  std::ranges::stable_sort(tokens, {}, &Token::number);
  std::vector<int32_t> all;
  for (size_t begin = 0; begin < tokens.size();) {
    std::vector<int32_t> alike;
    size_t end = begin;
    for (; end < tokens.size() && tokens[end].number == tokens[begin].number; ++end) {
      alike.push_back(tokens[end].token);
    }
    all.insert(all.end(), alike.begin(), alike.end());
    buckets_.push_back({tokens[begin].number, TokenSet(std::move(alike), num_tokens)});
    begin = end;
  }
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
