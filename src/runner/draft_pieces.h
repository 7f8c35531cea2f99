#pragma once
// Tokens that a draft model or head reads of sequences, cut into what one pass takes.
//
// Thread safety: free.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/sequence_table.h"

namespace quire {

// Tokens [begin, end) of a sequence.
struct DraftPiece {
  SequenceState* state;
  int64_t begin;
  int64_t end;
};

// Calls run(round), a std::span<const DraftPiece>, for parts of the pieces in their order, of at
// most `max_tokens` tokens together.
template <typename Run>
void for_each_round(std::span<const DraftPiece> pieces, int64_t max_tokens, const Run& run) {
  std::vector<DraftPiece> round;
  int64_t num_tokens = 0;
  const auto run_round = [&] {
    if (!round.empty()) run(std::span<const DraftPiece>(round));
    round.clear();
    num_tokens = 0;
  };
  for (DraftPiece piece : pieces) {
    while (piece.begin < piece.end) {
      const int64_t end = std::min(piece.end, piece.begin + max_tokens - num_tokens);
      round.push_back({piece.state, piece.begin, end});
      num_tokens += end - piece.begin;
      piece.begin = end;
      if (num_tokens == max_tokens) run_round();
    }
  }
  run_round();
}

}  // namespace quire
