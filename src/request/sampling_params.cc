#include "quire/sampling_params.h"

#include <fmt/format.h>

#include <string_view>

#include "quire/engine_limits.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopStringBytes = 4096;
constexpr size_t kMaxStopTokenIds = 1024;

template <typename T>
[[noreturn]] void refuse(std::string_view field, const T& value, std::string_view expected) {
  throw Error(fmt::format("The sampling parameter {} is {}, but {}.", field, value, expected));
}

// NaN fails either comparison.
void require_range(std::string_view field, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    refuse(field, value, fmt::format("must be from {} to {}", low, high));
  }
}

void require_positive_up_to(std::string_view field, double value, double high) {
  if (!(value > 0 && value <= high)) {
    refuse(field, value, fmt::format("must be greater than 0 and at most {}", high));
  }
}

void require_logprobs(std::string_view field, const std::optional<int>& value) {
  if (value && (*value < 0 || *value > kMaxLogprobs)) {
    refuse(field, *value, fmt::format("must be from 0 to {}", kMaxLogprobs));
  }
}

void validate_lengths(const SamplingParams& params) {
  if (params.max_tokens && *params.max_tokens < 1) {
    refuse("max_tokens", *params.max_tokens, "must be at least 1");
  }
  if (params.min_tokens < 0) refuse("min_tokens", params.min_tokens, "must be at least 0");
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    refuse("min_tokens", params.min_tokens,
           fmt::format("must be at most max_tokens, which is {}", *params.max_tokens));
  }
}

void validate_stop(const SamplingParams& params) {
  if (params.stop.size() > kMaxStopStrings) {
    refuse("stop", fmt::format("a list of {} strings", params.stop.size()),
           fmt::format("may have at most {}", kMaxStopStrings));
  }
  for (size_t i = 0; i < params.stop.size(); ++i) {
    const std::string field = fmt::format("stop[{}]", i);
    if (params.stop[i].empty()) refuse(field, "an empty string", "must have some text");
    if (params.stop[i].size() > kMaxStopStringBytes) {
      refuse(field, fmt::format("a string of {} bytes", params.stop[i].size()),
             fmt::format("may have at most {}", kMaxStopStringBytes));
    }
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    refuse("stop_token_ids", fmt::format("a list of {} ids", params.stop_token_ids.size()),
           fmt::format("may have at most {}", kMaxStopTokenIds));
  }
  for (size_t i = 0; i < params.stop_token_ids.size(); ++i) {
    if (params.stop_token_ids[i] < 0) {
      refuse(fmt::format("stop_token_ids[{}]", i), params.stop_token_ids[i],
             "a token id is at least 0");
    }
  }
}

void validate_logits_changes(const SamplingParams& params) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0) refuse("logit_bias", fmt::format("given for token {}", id), "ids start at 0");
    require_range(fmt::format("logit_bias[{}]", id), bias, -100, 100);
  }
  for (size_t i = 0; i < params.logits_processors.size(); ++i) {
    if (!params.logits_processors[i]) {
      refuse(fmt::format("logits_processors[{}]", i), "empty", "must hold a function");
    }
  }
}

}  // namespace

void SamplingParams::validate() const {
  if (n < 1 || n > 128) refuse("n", n, "must be from 1 to 128");
  require_range("temperature", temperature, 0, 100);
  if (top_k < -1) refuse("top_k", top_k, "must be at least 1, or 0 or -1 for all tokens");
  require_positive_up_to("top_p", top_p, 1);
  require_range("min_p", min_p, 0, 1);
  require_positive_up_to("repetition_penalty", repetition_penalty, 10);
  require_range("presence_penalty", presence_penalty, -2, 2);
  require_range("frequency_penalty", frequency_penalty, -2, 2);
  validate_logits_changes(*this);
  validate_lengths(*this);
  validate_stop(*this);
  require_logprobs("logprobs", logprobs);
  require_logprobs("prompt_logprobs", prompt_logprobs);
}

}  // namespace quire
