#include "quire/sampling_params.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "quire/error.h"
#include "quire/sampling_limits.h"

namespace quire {
namespace {

template <typename T>
[[noreturn]] void refuse(std::string_view field, const T& value, std::string_view expected) {
  throw Error(fmt::format("The sampling parameter {} is {}, but {}.", field, value, expected));
}

std::string expected_range(const SamplingLimit& limit) {
  if (limit.maximum == std::numeric_limits<double>::infinity()) {
    return fmt::format("must be at least {}", limit.minimum);
  }
  return limit.above_minimum
             ? fmt::format("must be greater than {} and at most {}", limit.minimum, limit.maximum)
             : fmt::format("must be from {} to {}", limit.minimum, limit.maximum);
}

// `name` is what messages call the value.
template <typename T>
void require(const SamplingLimit& limit, std::string_view name, const T& value) {
  if (!limit.allows(static_cast<double>(value))) refuse(name, value, expected_range(limit));
}

template <typename T>
void require(const SamplingLimit& limit, const T& value) {
  require(limit, limit.field, value);
}

template <typename T>
void require(const SamplingLimit& limit, const std::optional<T>& value) {
  if (value) require(limit, limit.field, *value);
}

void validate_lengths(const SamplingParams& params) {
  require(sampling_limit("max_tokens"), params.max_tokens);
  require(sampling_limit("min_tokens"), params.min_tokens);
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
    require(sampling_limit("logit_bias"), fmt::format("logit_bias[{}]", id), double{bias});
  }
  for (size_t i = 0; i < params.logits_processors.size(); ++i) {
    if (!params.logits_processors[i]) {
      refuse(fmt::format("logits_processors[{}]", i), "empty", "must hold a function");
    }
  }
}

}  // namespace

void SamplingParams::validate() const {
  require(sampling_limit("n"), n);
  require(sampling_limit("temperature"), temperature);
  if (!sampling_limit("top_k").allows(top_k)) {
    refuse("top_k", top_k, "must be at least 1, or 0 or -1 for all tokens");
  }
  require(sampling_limit("top_p"), top_p);
  require(sampling_limit("min_p"), min_p);
  require(sampling_limit("repetition_penalty"), repetition_penalty);
  require(sampling_limit("presence_penalty"), presence_penalty);
  require(sampling_limit("frequency_penalty"), frequency_penalty);
  validate_logits_changes(*this);
  validate_lengths(*this);
  validate_stop(*this);
  require(sampling_limit("logprobs"), logprobs);
  require(sampling_limit("prompt_logprobs"), prompt_logprobs);
}

}  // namespace quire
