#pragma once
// The answers to earlier requests, for drafts of later ones: suffix trees, separate for each cache
// salt, so that no client's text shows in the timing of another's.
//
// Bounded in the number of answers and in bytes, over all salts. A salt has two trees; the newer
// one takes new answers. When it has half of the allowed answers, or a quarter of the bytes as its
// tables may double, it becomes the older one, and the older one is forgotten. Salts that were used
// longest ago are forgotten first. Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "speculative/suffix_tree.h"

namespace quire::speculative_internal {

struct SuffixHistoryLimits {
  size_t depth = 0;         // of the trees, >= 2
  int64_t max_answers = 0;  // >= 1
  size_t max_bytes = 0;     // an answer that takes more than half of them is forgotten at once
};

class SuffixHistory {
 public:
  explicit SuffixHistory(SuffixHistoryLimits limits) : limits_(limits) {}

  // Adds an answer to a request with that salt.
  void add(const std::string& salt, std::span<const int32_t> token_ids);
  // The better drafts of the salt's trees behind suffixes of `token_ids`.
  SuffixDrafts after(const std::string& salt, std::span<const int32_t> token_ids,
                     const SuffixLimits& limits) const;

  int64_t num_answers() const { return num_answers_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Generation {
    explicit Generation(size_t depth) : tree(depth) {}
    SuffixTree tree;
    int64_t num_answers = 0;
  };
  struct Salt {
    std::string name;
    std::optional<Generation> newer{};
    std::optional<Generation> older{};
  };

  Salt& most_recent(const std::string& name);
  bool is_half_full(const Generation& generation) const;
  void forget(std::optional<Generation>& generation);
  void forget_oldest();

  SuffixHistoryLimits limits_;
  std::list<Salt> salts_;  // the one that was added to last first
  std::unordered_map<std::string, std::list<Salt>::iterator> by_name_;
  int64_t num_answers_ = 0;
  size_t bytes_ = 0;
};

}  // namespace quire::speculative_internal
