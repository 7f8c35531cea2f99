#pragma once
// Free text up to the first place where a trigger is complete.
//
// Thread safety: a free function.
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

struct TriggerDfa {
  DfaPtr dfa;                       // accepts where a trigger ends, and goes on nowhere from there
  std::vector<int32_t> utf8_state;  // for each state the one of `utf8`
  std::vector<int32_t> trigger;     // for each state the trigger that is complete, or -1
};

// `utf8` has valid text. No trigger contains another but as its beginning; all are valid text.
TriggerDfa make_trigger_dfa(const std::vector<std::string>& triggers, const Dfa& utf8,
                            Budget& budget);

}  // namespace quire::grammar
