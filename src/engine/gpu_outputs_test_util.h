#pragma once
// Compares outputs of engines on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "quire/request_output.h"

namespace quire::engine_test {

inline void expect_close(const std::vector<PositionLogprobs>& actual,
                         const std::vector<PositionLogprobs>& expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].size(), expected[i].size()) << where;
    for (size_t j = 0; j < actual[i].size(); ++j) {
      EXPECT_EQ(actual[i][j].token_id, expected[i][j].token_id) << where;
      EXPECT_NEAR(actual[i][j].logprob, expected[i][j].logprob,
                  1e-4f * std::max(1.0f, std::abs(expected[i][j].logprob)))
          << where;
    }
  }
}

// In float32 how attention cuts its sums changes the last bits of a logit, and no token.
inline void expect_same_outputs(const RequestOutput& actual, const RequestOutput& expected,
                                const std::string& where) {
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size()) << where;
  expect_close(actual.prompt_logprobs, expected.prompt_logprobs, where);
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    EXPECT_EQ(actual.outputs[i].token_ids, expected.outputs[i].token_ids) << where;
    EXPECT_EQ(actual.outputs[i].finish_reason, expected.outputs[i].finish_reason) << where;
    expect_close(actual.outputs[i].logprobs, expected.outputs[i].logprobs, where);
  }
}

}  // namespace quire::engine_test
