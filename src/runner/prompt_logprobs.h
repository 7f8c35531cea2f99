#pragma once
// The rows of a step's hidden state that prompt log-probabilities are computed from.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <span>
#include <vector>

#include "runner/sequence_table.h"

namespace quire {

// Rows of one sequence whose logits are computed together.
struct PromptRows {
  size_t sequence = 0;               // its number in the step
  int64_t first_row = 0;             // of the hidden state
  std::span<const int32_t> targets;  // the prompt token that each row predicts
  int num_top = 0;                   // best tokens to be reported beside it
};

// In the order of the prompts' tokens, at most max_rows rows each. Empty where no sequence asks for
// log-probabilities of its prompt. Points into the sequences' states.
std::vector<PromptRows> prompt_rows(std::span<const StepSequence> sequences, int64_t max_rows);

}  // namespace quire
