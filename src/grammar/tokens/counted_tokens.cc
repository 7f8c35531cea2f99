#include "grammar/tokens/counted_tokens.h"

#include <utility>

namespace quire::grammar {

void CountedTokensMaker::add(uint32_t number, int32_t token) {
  Some& some = number < small_.size() ? small_[number] : some_of(number);
  ++count_;
  if (!some.bits.empty()) return allow(some.bits, token);
  some.few.push_back(token);
  const size_t num_words = mask_words(num_tokens_);
  if (some.few.size() < num_words) return;
  some.bits.resize(num_words);
  for (const int32_t one : some.few) allow(some.bits, one);
  some.few = {};
}

CountedTokensMaker::Some& CountedTokensMaker::some_of(uint32_t number) {
  // Nearly all numbers are small.
  constexpr uint32_t kSmall = 1024;
  if (number >= kSmall) return large_[number];
  small_.resize(number + 1);
  return small_[number];
}

CountedTokens CountedTokensMaker::make() && {
  // Where they are few, a list of them is enough.
  const bool are_few = count_ < mask_words(num_tokens_);
  std::vector<int32_t> all_few;
  CountedTokens made;
  const auto add = [&](uint32_t number, Some& some) {
    if (are_few) all_few.insert(all_few.end(), some.few.begin(), some.few.end());
    made.buckets_.push_back({number, some.bits.empty() ? TokenSet(std::move(some.few), num_tokens_)
                                                       : TokenSet::of_bits(std::move(some.bits))});
  };
  for (uint32_t number = 0; number < small_.size(); ++number) {
    Some& some = small_[number];
    if (!some.few.empty() || !some.bits.empty()) add(number, some);
  }
  for (auto& [number, some] : large_) add(number, some);
  // One bucket is all of them.
  if (made.buckets_.size() < 2) return made;
  if (are_few) {
    made.all_ = TokenSet(std::move(all_few), num_tokens_);
    return made;
  }
  std::vector<uint32_t> all(mask_words(num_tokens_));
  for (const CountedTokens::Bucket& bucket : made.buckets_) bucket.tokens.allow(all);
  made.all_ = TokenSet::of_bits(std::move(all));
  return made;
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
