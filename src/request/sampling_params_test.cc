#include "quire/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "quire/error.h"
#include "quire/request_output.h"
#include "quire/sampling_limits.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string message_of(const SamplingParams& params) {
  try {
    params.validate();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SamplingParamsTest, DefaultsAndLimitsAreValid) {
  SamplingParams params;
  EXPECT_EQ(message_of(params), "");
  params.n = 128;
  params.temperature = 100;
  params.top_k = -1;
  params.top_p = 1e-9;
  params.min_p = 1;
  params.repetition_penalty = 10;
  params.presence_penalty = -2;
  params.frequency_penalty = 2;
  params.logit_bias = {{0, -100.0f}, {5, 100.0f}};
  params.max_tokens = std::nullopt;
  params.min_tokens = 1000;
  params.stop = std::vector<std::string>(64, std::string(4096, 'x'));
  params.stop_token_ids = {0};
  params.logprobs = 20;
  params.prompt_logprobs = 0;
  params.logits_processors = {[](std::span<const int32_t>, std::span<float>) {}};
  EXPECT_EQ(message_of(params), "");
}

TEST(SamplingParamsTest, EachFieldOutOfRangeIsNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::tuple<std::string, std::string, std::function<void(SamplingParams&)>>>
      cases = {
          {"n is 0", "from 1 to 128", [](auto& p) { p.n = 0; }},
          {"n is 129", "from 1 to 128", [](auto& p) { p.n = 129; }},
          {"temperature is -0.1", "from 0 to 100", [](auto& p) { p.temperature = -0.1; }},
          {"temperature is nan", "from 0 to 100", [=](auto& p) { p.temperature = nan; }},
          {"temperature is inf", "from 0 to 100", [=](auto& p) { p.temperature = infinity; }},
          {"top_k is -2", "at least 1", [](auto& p) { p.top_k = -2; }},
          {"top_p is 0", "greater than 0 and at most 1", [](auto& p) { p.top_p = 0; }},
          {"top_p is 1.5", "at most 1", [](auto& p) { p.top_p = 1.5; }},
          {"top_p is nan", "at most 1", [=](auto& p) { p.top_p = nan; }},
          {"min_p is -1", "from 0 to 1", [](auto& p) { p.min_p = -1; }},
          {"repetition_penalty is 0", "from 0.001 to 10",
           [](auto& p) { p.repetition_penalty = 0; }},
          {"repetition_penalty is 5e-324", "from 0.001 to 10",
           [](auto& p) { p.repetition_penalty = 5e-324; }},
          {"presence_penalty is 3", "from -2 to 2", [](auto& p) { p.presence_penalty = 3; }},
          {"frequency_penalty is -3", "from -2 to 2", [](auto& p) { p.frequency_penalty = -3; }},
          {"logit_bias is given for token -1", "start at 0",
           [](auto& p) {
             p.logit_bias = {{-1, 0.0f}};
           }},
          {"logit_bias[7] is 101", "from -100 to 100",
           [](auto& p) {
             p.logit_bias = {{7, 101.0f}};
           }},
          {"logit_bias[7] is nan", "from -100 to 100",
           [](auto& p) {
             p.logit_bias = {{7, std::numeric_limits<float>::quiet_NaN()}};
           }},
          {"max_tokens is 0", "at least 1", [](auto& p) { p.max_tokens = 0; }},
          {"min_tokens is -1", "at least 0", [](auto& p) { p.min_tokens = -1; }},
          {"min_tokens is 17", "at most max_tokens, which is 16",
           [](auto& p) { p.min_tokens = 17; }},
          {"stop is a list of 65 strings", "at most 64",
           [](auto& p) { p.stop = std::vector<std::string>(65, "x"); }},
          {"stop[1] is an empty string", "some text",
           [](auto& p) {
             p.stop = {"a", ""};
           }},
          {"stop[0] is a string of 4097 bytes", "at most 4096",
           [](auto& p) { p.stop = {std::string(4097, 'x')}; }},
          {"stop_token_ids[1] is -5", "at least 0",
           [](auto& p) {
             p.stop_token_ids = {1, -5};
           }},
          {"stop_token_ids is a list of 1025 ids", "at most 1024",
           [](auto& p) { p.stop_token_ids.resize(1025); }},
          {"logprobs is 21", "from 0 to 20", [](auto& p) { p.logprobs = 21; }},
          {"prompt_logprobs is -1", "from 0 to 20", [](auto& p) { p.prompt_logprobs = -1; }},
          {"logits_processors[0] is empty", "function",
           [](auto& p) { p.logits_processors.emplace_back(); }},
      };
  for (const auto& [problem, expected, change] : cases) {
    SamplingParams params;
    change(params);
    EXPECT_THAT(message_of(params), AllOf(HasSubstr(problem), HasSubstr(expected)));
  }
}

// Sets a field that has a row in the table of limits.
void set_field(SamplingParams& params, const std::string& field, double value) {
  const std::map<std::string, std::function<void()>> setters = {
      {"n", [&] { params.n = static_cast<int>(value); }},
      {"temperature", [&] { params.temperature = value; }},
      {"top_k", [&] { params.top_k = static_cast<int>(value); }},
      {"top_p", [&] { params.top_p = value; }},
      {"min_p", [&] { params.min_p = value; }},
      {"repetition_penalty", [&] { params.repetition_penalty = value; }},
      {"presence_penalty", [&] { params.presence_penalty = value; }},
      {"frequency_penalty", [&] { params.frequency_penalty = value; }},
      {"logit_bias",
       [&] {
         params.logit_bias = {{7, static_cast<float>(value)}};
       }},
      {"max_tokens", [&] { params.max_tokens = static_cast<int64_t>(value); }},
      {"min_tokens", [&] { params.min_tokens = static_cast<int64_t>(value); }},
      {"logprobs", [&] { params.logprobs = static_cast<int>(value); }},
      {"prompt_logprobs", [&] { params.prompt_logprobs = static_cast<int>(value); }},
  };
  setters.at(field)();
}

TEST(SamplingParamsTest, EveryLimitOfTheTableIsApplied) {
  for (const SamplingLimit& limit : kSamplingLimits) {
    const std::string field(limit.field);
    const auto refused = [&](double value) {
      SamplingParams params;
      set_field(params, field, value);
      return message_of(params);
    };
    EXPECT_EQ(refused(limit.minimum).empty(), !limit.above_minimum) << field;
    EXPECT_THAT(refused(limit.minimum - 1), HasSubstr(field));
    if (limit.maximum > std::numeric_limits<int32_t>::max() - 1) continue;
    EXPECT_EQ(refused(limit.maximum), "") << field;
    EXPECT_THAT(refused(limit.maximum + 1), HasSubstr(field));
  }
}

TEST(FinishReasonTest, HasTheNamesOfTheApi) {
  EXPECT_EQ(to_string(FinishReason::kStop), "stop");
  EXPECT_EQ(to_string(FinishReason::kLength), "length");
  EXPECT_EQ(to_string(FinishReason::kAbort), "abort");
}

}  // namespace
}  // namespace quire
