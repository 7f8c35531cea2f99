#pragma once
// SentencePiece's BPE as merges: it joins the two neighbours whose joined token has the highest
// score.
//
// Thread safety: a free function.
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace quire::tokenizer_internal {

// For each token that joining may make, adds the merges of all pairs of tokens that make it. They
// are ranked as transformers does for such a model: by score, highest first, then by the length in
// characters of the left token and of the right one, longest first. `joins` and `scores` are by id.
// Returns whether a merge makes a token with a marker (U+2581) after another character. Throws
// Error for a token that is too long, because the work grows with the square of its length, and for
// a score that is not a number.
bool add_score_merges(const Vocabulary& vocabulary, const std::vector<bool>& joins,
                      const std::vector<float>& scores, MergeTable& merges);

}  // namespace quire::tokenizer_internal
