#pragma once
// Fills a table of merges from the texts of their tokens, some at a time, so that the waits for
// memory overlap: there are several hundred thousand lookups.
//
// Thread safety: one thread at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace quire::tokenizer_internal {

// A merge with a token that is not in the vocabulary.
struct UnknownMerge {
  std::string_view left;
  std::string_view right;
  std::string_view missing;  // left, right or both together
  std::uint32_t rank;
  std::size_t place;  // as it was added
};

class MergeReader {
 public:
  // Makes room in the table for as many merges as there are tokens. The vocabulary is complete.
  // What is not known goes to `fail`, which throws. All outlive the reader.
  MergeReader(const Vocabulary& vocabulary, MergeTable& merges,
              std::function<void(const UnknownMerge&)> fail);

  // Returns the text of what left and right become, until the next call. `place`: for `fail`.
  std::string_view add(std::string_view left, std::string_view right, std::uint32_t rank,
                       std::size_t place);
  // After the last.
  void finish();

 private:
  struct Pending {
    std::string joined;
    std::size_t left_size = 0;
    std::uint32_t rank = 0;
    std::size_t place = 0;
    Merge merge;
    std::int32_t left_id = Vocabulary::kNone;
    std::int32_t right_id = Vocabulary::kNone;

    std::string_view left() const { return std::string_view(joined).substr(0, left_size); }
    std::string_view right() const { return std::string_view(joined).substr(left_size); }
  };
  void look_up(Pending& pending);

  const Vocabulary& vocabulary_;
  MergeTable& merges_;
  std::function<void(const UnknownMerge&)> fail_;
  std::array<Pending, Vocabulary::kMostAtOnce / 2> pending_;
  std::size_t count_ = 0;
  std::int32_t last_joined_ = Vocabulary::kNone;  // of the last merge
};

}  // namespace quire::tokenizer_internal
