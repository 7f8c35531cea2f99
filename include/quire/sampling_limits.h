#pragma once
// The ranges of SamplingParams' fields: the one table that validation, the API's schema and the
// command line read. Defaults are those of SamplingParams' members.
//
// Thread safety: constants.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "quire/engine_limits.h"

namespace quire {

struct SamplingLimit {
  std::string_view field;
  double minimum = 0;
  double maximum =
      std::numeric_limits<double>::infinity();  // infinite: the model's context decides
  bool above_minimum = false;                   // the minimum itself is too little

  // False for NaN.
  constexpr bool allows(double value) const {
    return (above_minimum ? value > minimum : value >= minimum) && value <= maximum;
  }
};

inline constexpr std::array kSamplingLimits = {
    SamplingLimit{.field = "n", .minimum = 1, .maximum = 128},
    SamplingLimit{.field = "temperature", .minimum = 0, .maximum = 100},
    // 0 and -1: all tokens.
    SamplingLimit{.field = "top_k", .minimum = -1, .maximum = std::numeric_limits<int32_t>::max()},
    SamplingLimit{.field = "top_p", .minimum = 0, .maximum = 1, .above_minimum = true},
    SamplingLimit{.field = "min_p", .minimum = 0, .maximum = 1},
    // Logits are divided by it, and stay finite.
    SamplingLimit{.field = "repetition_penalty", .minimum = 0.001, .maximum = 10},
    SamplingLimit{.field = "presence_penalty", .minimum = -2, .maximum = 2},
    SamplingLimit{.field = "frequency_penalty", .minimum = -2, .maximum = 2},
    SamplingLimit{.field = "logit_bias", .minimum = -100, .maximum = 100},  // of each token
    SamplingLimit{.field = "max_tokens", .minimum = 1},
    SamplingLimit{.field = "min_tokens", .minimum = 0},
    SamplingLimit{.field = "logprobs", .minimum = 0, .maximum = kMaxLogprobs},
    SamplingLimit{.field = "prompt_logprobs", .minimum = 0, .maximum = kMaxLogprobs},
};

// The row of `field`; a field without one does not compile.
inline consteval SamplingLimit sampling_limit(std::string_view field) {
  std::size_t row = 0;
  while (kSamplingLimits.at(row).field != field) ++row;
  return kSamplingLimits.at(row);
}

// Limits of the lists.
inline constexpr std::size_t kMaxStopStrings = 64;
inline constexpr std::size_t kMaxStopStringBytes = 4096;  // of each
inline constexpr std::size_t kMaxStopTokenIds = 1024;

}  // namespace quire
