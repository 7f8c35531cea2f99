#include "tokenizer/merge_reader.h"

#include <utility>

namespace quire::tokenizer_internal {

MergeReader::MergeReader(const Vocabulary& vocabulary, MergeTable& merges,
                         std::function<void(const UnknownMerge&)> fail)
    : vocabulary_(vocabulary), merges_(merges), fail_(std::move(fail)) {
  // Mostly each token of several characters is what one merge makes.
  merges_.reserve(vocabulary.size());
}

std::string_view MergeReader::add(std::string_view left, std::string_view right, std::uint32_t rank,
                                  std::size_t place) {
  if (count_ == pending_.size()) finish();
  Pending& pending = pending_[count_++];
  pending.joined.assign(left).append(right);
  pending.left_size = left.size();
  pending.rank = rank;
  pending.place = place;
  return pending.joined;
}

void MergeReader::finish() {
  std::array<std::string_view, Vocabulary::kMostAtOnce> tokens;
  std::array<std::int32_t, Vocabulary::kMostAtOnce> ids;
  for (std::size_t i = 0; i < count_; ++i) {
    tokens[2 * i] = pending_[i].left();
    tokens[2 * i + 1] = pending_[i].right();
  }
  vocabulary_.find_all({tokens.data(), 2 * count_}, ids.data());
  for (std::size_t i = 0; i < count_; ++i) {
    pending_[i].left_id = ids[2 * i];
    pending_[i].right_id = ids[2 * i + 1];
    look_up(pending_[i]);
    merges_.prefetch(ids[2 * i], ids[2 * i + 1]);
  }
  for (std::size_t i = 0; i < count_; ++i) {
    merges_.set(pending_[i].left_id, pending_[i].right_id, pending_[i].merge);
  }
  count_ = 0;
}

void MergeReader::look_up(Pending& pending) {
  // Files mostly have the tokens in the order of the merges that make them.
  const std::int32_t id = vocabulary_.find(pending.joined, last_joined_ + 1);
  const std::string_view missing = pending.left_id == Vocabulary::kNone    ? pending.left()
                                   : pending.right_id == Vocabulary::kNone ? pending.right()
                                   : id == Vocabulary::kNone ? std::string_view(pending.joined)
                                                             : std::string_view();
  if (pending.left_id == Vocabulary::kNone || pending.right_id == Vocabulary::kNone ||
      id == Vocabulary::kNone) {
    fail_({pending.left(), pending.right(), missing, pending.rank, pending.place});
  }
  pending.merge = {pending.rank, id};
  last_joined_ = id;
}

}  // namespace quire::tokenizer_internal
