#include "tokenizer/score_merges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quire/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::size_t kMaxTokenBytes = 512;

struct ScoredMerge {
  float score = 0;
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t joined = 0;
  std::uint32_t left_length = 0;  // in characters
  std::uint32_t right_length = 0;
};

void collect_merges(const Vocabulary& vocabulary, std::int32_t joined, float score,
                    std::vector<ScoredMerge>& out) {
  const std::string_view text = vocabulary.text(joined);
  if (text.size() > kMaxTokenBytes) {
    throw Error(fmt::format("token {} has {} bytes; at most {} are supported.", joined, text.size(),
                            kMaxTokenBytes));
  }
  std::vector<std::size_t> ends;  // of its characters
  for (std::size_t at = 0; at < text.size();) {
    at += decode_at(text, at).size;
    ends.push_back(at);
  }
  const std::size_t first = out.size();
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    const std::int32_t left = vocabulary.find(text.substr(0, ends[i]));
    const std::int32_t right = vocabulary.find(text.substr(ends[i]));
    if (left == Vocabulary::kNone || right == Vocabulary::kNone) continue;
    out.push_back({score, left, right, joined, static_cast<std::uint32_t>(i + 1),
                   static_cast<std::uint32_t>(ends.size() - i - 1)});
  }
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
            [](const ScoredMerge& a, const ScoredMerge& b) {
              return a.left != b.left ? a.left < b.left : a.right < b.right;
            });
}

bool comes_first(const ScoredMerge& a, const ScoredMerge& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.left_length != b.left_length) return a.left_length > b.left_length;
  return a.right_length > b.right_length;
}

}  // namespace

bool add_score_merges(const Vocabulary& vocabulary, const std::vector<bool>& joins,
                      const std::vector<float>& scores, MergeTable& merges) {
  std::vector<ScoredMerge> found;
  bool crosses_marker = false;
  for (std::size_t i = 0; i < joins.size(); ++i) {
    if (!joins[i]) continue;
    if (std::isnan(scores[i])) throw Error(fmt::format("the score of token {} is no number.", i));
    const std::size_t before = found.size();
    const auto id = static_cast<std::int32_t>(i);
    collect_merges(vocabulary, id, scores[i], found);
    crosses_marker =
        crosses_marker || (found.size() > before && has_inner_marker(vocabulary.text(id)));
  }
  std::stable_sort(found.begin(), found.end(), comes_first);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const ScoredMerge& merge = found[rank];
    merges.set(merge.left, merge.right, {static_cast<std::uint32_t>(rank), merge.joined});
  }
  return crosses_marker;
}

}  // namespace quire::tokenizer_internal
