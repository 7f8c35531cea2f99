// However a sequence's tokens are spread over steps, its request's output is the same.
#include "engine/output_processor.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/test_models.h"

namespace quire {
namespace {

struct Outcome {
  std::string text;
  std::string streamed_text;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> streamed_ids;
  std::vector<int32_t> logprob_ids;
  std::optional<FinishReason> finish_reason;
  std::string stop_reason;
  int64_t num_taken = 0;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

class OutputProcessorTest : public ::testing::Test {
 protected:
  std::vector<int32_t> encode(const std::string& text) const {
    return tokenizer_.encode(text, false);
  }

  // Gives the tokens in steps of up to `most` each; the sequence ends with the last, for `reason`.
  Outcome run(const SamplingParams& params, const std::vector<int32_t>& token_ids,
              const std::optional<SequenceEnd>& end, size_t most, uint32_t seed) const {
    Request request;
    request.prompt_token_ids = {1};
    request.params = params;
    request.output_kind = OutputKind::kDelta;
    const auto facts = std::make_shared<const Request>(std::move(request));
    RequestState streamed(facts, Clock::now(), {1}, &tokenizer_);
    CompletionState whole(0, facts->params, &tokenizer_);
    std::mt19937 random(seed);
    Outcome outcome;
    for (size_t begin = 0; begin < token_ids.size() && !outcome.stopped;) {
      SequenceUpdate update;
      for (size_t n = 1 + random() % most; n > 0 && begin < token_ids.size(); --n, ++begin) {
        update.token_ids.push_back(token_ids[begin]);
        if (params.logprobs) update.logprobs.push_back({{token_ids[begin]}, {-1.0f}, {1}});
      }
      if (begin == token_ids.size()) update.end = end;
      const TakenTokens taken = whole.append(update);
      outcome.num_taken += taken.count;
      outcome.stopped = taken.stopped;
      EXPECT_EQ(streamed.append(0, update, Clock::now()).count, taken.count);
      take_delta(streamed, outcome);
    }
    const CompletionOutput output = whole.take(false);
    outcome.text = output.text;
    outcome.token_ids = output.token_ids;
    outcome.finish_reason = output.finish_reason;
    outcome.stop_reason = output.stop_reason;
    for (const PositionLogprobs& position : output.logprobs) {
      outcome.logprob_ids.push_back(position.at(0).token_id);
    }
    return outcome;
  }

  static void take_delta(RequestState& streamed, Outcome& outcome) {
    if (!streamed.wants_output()) return;
    const CompletionOutput delta = streamed.take_output().outputs.at(0);
    outcome.streamed_text += delta.text;
    outcome.streamed_ids.insert(outcome.streamed_ids.end(), delta.token_ids.begin(),
                                delta.token_ids.end());
  }

  // The outcome of one token a step, once several a step are found to have it, too.
  Outcome outcome_of(const SamplingParams& params, const std::vector<int32_t>& token_ids,
                     const std::optional<SequenceEnd>& end) const {
    const Outcome expected = run(params, token_ids, end, 1, 0);
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      EXPECT_TRUE(run(params, token_ids, end, 5, seed) == expected) << "seed " << seed;
    }
    EXPECT_EQ(expected.streamed_text, expected.text);
    EXPECT_EQ(expected.streamed_ids, expected.token_ids);
    EXPECT_EQ(expected.num_taken, std::ssize(expected.token_ids));
    return expected;
  }

  Tokenizer tokenizer_ =
      Tokenizer::from_folder(std::filesystem::path(QUIRE_SOURCE_DIR) / "models" / "lexicon");
};

const SequenceEnd kLength{FinishReason::kLength, std::nullopt};

TEST_F(OutputProcessorTest, WhatIsBehindAStopStringIsDroppedAndNotCounted) {
  SamplingParams params;
  params.stop = {"round", "zebra"};
  params.logprobs = 0;
  const std::vector<int32_t> token_ids = encode("An apple is a round fruit that grows on trees.");
  const Outcome outcome = outcome_of(params, token_ids, kLength);
  EXPECT_EQ(outcome.text, "An apple is a ");
  EXPECT_EQ(outcome.stop_reason, "round");
  EXPECT_EQ(outcome.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_LT(outcome.token_ids.size(), token_ids.size());
  EXPECT_EQ(outcome.logprob_ids, outcome.token_ids);
  params.include_stop_str_in_output = true;
  EXPECT_EQ(outcome_of(params, token_ids, kLength).text, "An apple is a round");
}

TEST_F(OutputProcessorTest, AStopStringCountsOnceMinTokensAreThere) {
  SamplingParams params;
  params.stop = {"pear"};
  const std::vector<int32_t> token_ids = encode("pear, plum and pear");
  params.min_tokens = std::ssize(encode("pear, plum"));
  EXPECT_EQ(outcome_of(params, token_ids, kLength).text, "pear, plum and ");
}

TEST_F(OutputProcessorTest, AStopTokenEndsTheText) {
  const std::vector<int32_t> token_ids = encode("a fruit of the apple tree");
  const SequenceEnd end{FinishReason::kStop, token_ids.back()};
  const Outcome outcome = outcome_of({}, token_ids, end);
  EXPECT_EQ(outcome.token_ids, token_ids);
  EXPECT_EQ(outcome.stop_reason, std::to_string(token_ids.back()));
  EXPECT_EQ(outcome.finish_reason, FinishReason::kStop);
  EXPECT_FALSE(outcome.stopped) << "the scheduler knows";
}

TEST_F(OutputProcessorTest, ALengthLimitKeepsAllThatCame) {
  const std::vector<int32_t> token_ids = encode("Zwölf Boxkämpfer jagen Viktor über den Deich");
  const Outcome outcome = outcome_of({}, token_ids, kLength);
  EXPECT_EQ(outcome.token_ids, token_ids);
  EXPECT_EQ(outcome.text, tokenizer_.decode(token_ids));
}

// All but the last token of each step are drafts.
TEST_F(OutputProcessorTest, DraftsBehindAStopStringAreNotCounted) {
  const std::vector<int32_t> token_ids = encode("An apple is a round fruit that grows on trees.");
  Request request;
  request.prompt_token_ids = {1};
  request.params.stop = {"round"};
  RequestState state(std::make_shared<const Request>(std::move(request)), Clock::now(), {7},
                     &tokenizer_);
  SequenceUpdate update;
  update.token_ids.push_back(token_ids.front());
  state.append(0, update, Clock::now());
  update.token_ids.truncate(0);
  for (size_t i = 1; i < token_ids.size(); ++i) update.token_ids.push_back(token_ids[i]);
  const TakenTokens taken = state.append(0, update, Clock::now());
  EXPECT_TRUE(taken.stopped);
  EXPECT_LT(taken.count, std::ssize(update.token_ids) - 1);
  EXPECT_EQ(state.take_output().metrics.num_accepted_draft_tokens, taken.count);
}

TEST(RequestState, CountsStepsPreemptionsDraftsAndForcedText) {
  Request request;
  request.prompt_token_ids = {1};
  request.params.n = 2;
  RequestState state(std::make_shared<const Request>(std::move(request)), Clock::now(), {7, 8},
                     nullptr);
  state.mark_scheduled(3, 0, Clock::now());
  state.mark_scheduled(3, 0, Clock::now());  // its second sequence, in the same step
  state.mark_scheduled(5, 4, Clock::now());
  SequenceUpdate update;
  update.token_ids = {10, 11, 12};  // two drafts were kept
  update.num_preemptions = 1;
  state.append(0, update, Clock::now());
  update.num_preemptions = 2;
  state.append(1, update, Clock::now());
  state.append(1, update, Clock::now());  // as often as before
  state.mark_scheduled(6, 0, Clock::now());
  update.token_ids = {13, 14, 15, 16};  // three of them forced
  state.append(1, update, Clock::now(), {}, true);
  state.mark_preemptions(0, 3);  // since its last output
  const RequestMetrics metrics = state.take_output().metrics;
  EXPECT_EQ(metrics.num_steps, 3);
  EXPECT_EQ(metrics.num_preemptions, 5);
  EXPECT_EQ(metrics.num_drafts, 1);
  EXPECT_EQ(metrics.num_draft_tokens, 4);
  EXPECT_EQ(metrics.num_accepted_draft_tokens, 6);
  EXPECT_EQ(metrics.num_forced_tokens, 3);
}

}  // namespace
}  // namespace quire
