#include "loadgen/measurements.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::loadgen {
namespace {

RequestResult succeeded(int64_t output_tokens) {
  RequestResult result;
  result.outcome = Outcome::kSucceeded;
  result.ttft_s = 1;
  result.last_output_s = 3;
  result.total_s = 4;
  result.itl_s = {0.5F, 1.5F};
  result.num_output_events = 3;
  result.input_tokens = 10;
  result.output_tokens = output_tokens;
  result.cached_tokens = 6;
  return result;
}

RequestResult failed(std::string error, Outcome outcome = Outcome::kFailed) {
  RequestResult result = succeeded(7);
  result.outcome = outcome;
  result.error = std::move(error);
  return result;
}

TEST(Measurements, AddsUpWhatSucceeded) {
  Measurements measured;
  measured.add({}, succeeded(5));
  measured.add({}, succeeded(9));
  EXPECT_EQ(measured.completed(), 2);
  EXPECT_EQ(measured.input_tokens(), 20);
  EXPECT_EQ(measured.cached_tokens(), 12);
  EXPECT_EQ(measured.output_tokens(), 14);
  EXPECT_EQ(measured.counted_by_events(), 0);
  EXPECT_EQ(measured.ttft().mean(), 1);
  EXPECT_EQ(measured.e2el().mean(), 4);
  EXPECT_EQ(measured.itl().count(), 4);
  EXPECT_EQ(measured.itl().mean(), 1);
  EXPECT_DOUBLE_EQ(measured.tpot().mean(), (2.0 / 4 + 2.0 / 8) / 2);
}

TEST(Measurements, OneTokenHasNoTimePerToken) {
  Measurements measured;
  measured.add({}, succeeded(1));
  EXPECT_EQ(measured.tpot().count(), 0);
}

TEST(Measurements, CountsEventsWhereTheServerDoesNotCount) {
  RequestResult result = succeeded(0);
  result.output_tokens.reset();
  result.input_tokens.reset();
  LoadRequest with_length;
  with_length.num_prompt_tokens = 8;
  Measurements measured;
  measured.add(with_length, result);
  measured.add({}, result);
  EXPECT_EQ(measured.output_tokens(), 6);
  EXPECT_EQ(measured.counted_by_events(), 2);
  EXPECT_EQ(measured.input_tokens(), 8);
  EXPECT_EQ(measured.without_input_tokens(), 1);
}

TEST(Measurements, FailuresCountApart) {
  Measurements measured;
  measured.add({}, failed("a"));
  measured.add({}, failed("b"));
  measured.add({}, failed("a"));
  measured.add({}, failed("full", Outcome::kRejected));
  measured.add_mismatch({.request = 3, .byte = 1, .expected = "x", .got = "y"});
  measured.add_retry();
  EXPECT_EQ(measured.completed(), 0);
  EXPECT_EQ(measured.failed(), 4);
  EXPECT_EQ(measured.rejected(), 1);
  EXPECT_EQ(measured.ended(), 5);
  EXPECT_EQ(measured.retries(), 1);
  EXPECT_EQ(measured.mismatches(), 1);
  EXPECT_EQ(measured.output_tokens(), 0);
  EXPECT_EQ(measured.ttft().count(), 0);
  EXPECT_EQ(measured.errors().at("a"), 2);
  EXPECT_EQ(measured.errors().at("full"), 1);
}

TEST(Measurements, BoundsWhatItKeeps) {
  Measurements measured;
  for (int i = 0; i < 1000; ++i) {
    measured.add({}, failed("request " + std::to_string(i)));
    measured.add_mismatch({});
  }
  EXPECT_LE(measured.errors().size(), Measurements::kMaxErrorKinds + 1);
  EXPECT_EQ(measured.shown_mismatches().size(), Measurements::kMaxShownMismatches);
  int64_t sum = 0;
  for (const auto& [message, count] : measured.errors()) sum += count;
  EXPECT_EQ(sum, 2000);
}

}  // namespace
}  // namespace quire::loadgen
