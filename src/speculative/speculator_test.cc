#include "speculative/speculator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Proposes what it is asked for, and counts what it holds.
class FakeProposer : public Proposer {
 public:
  FakeProposer(std::map<SequenceId, int64_t>& num_tokens, const bool& has_drafts)
      : num_tokens_(num_tokens), has_drafts_(has_drafts) {}
  void add(SequenceId id, const Request& request) override {
    num_tokens_[id] = request.num_prompt_tokens();
  }
  void append(SequenceId id, std::span<const int32_t> token_ids) override {
    num_tokens_.at(id) += std::ssize(token_ids);
  }
  bool has_drafts(SequenceId) const override { return has_drafts_; }
  std::vector<int32_t> propose(SequenceId id, size_t most) override {
    return std::vector<int32_t>(most, static_cast<int32_t>(id));
  }
  void remove(SequenceId id) override { num_tokens_.erase(id); }

 private:
  std::map<SequenceId, int64_t>& num_tokens_;
  const bool& has_drafts_;
};

class SpeculatorTest : public testing::Test {
 protected:
  SpeculatorTest() { request_.prompt_token_ids = {1, 2, 3}; }

  // A step that verified `num_drafts` and kept `num_kept`.
  void step(SequenceId id, size_t num_drafts, size_t num_kept) {
    speculator_.append(id, request_, std::vector<int32_t>(num_kept + 1, 5), num_drafts);
  }

  // What one sequence is given behind its newest token.
  std::vector<int32_t> next_drafts(SequenceId id) {
    for (const SequenceId ready : speculator_.take_ready()) {
      if (ready == id) return speculator_.propose(id);
    }
    return {};
  }

  Request request_;
  std::map<SequenceId, int64_t> num_tokens_;
  bool proposer_has_drafts_ = true;
  Speculator speculator_{std::make_unique<FakeProposer>(num_tokens_, proposer_has_drafts_), 8};
};

TEST_F(SpeculatorTest, TellsTheProposerOfEachToken) {
  step(4, 0, 0);
  EXPECT_EQ(num_tokens_.at(4), 4);
  step(4, 3, 2);
  EXPECT_EQ(num_tokens_.at(4), 7);
  speculator_.remove(4);
  speculator_.remove(4);
  EXPECT_TRUE(num_tokens_.empty());
  EXPECT_FALSE(speculator_.drafts_next());
  EXPECT_THAT(speculator_.take_ready(), IsEmpty());
}

TEST_F(SpeculatorTest, NobodyWaitsForASequenceThatTheProposerKnowsNothingOf) {
  proposer_has_drafts_ = false;
  for (int i = 0; i < 10 * Speculator::kProbeInterval; ++i) {
    step(4, 0, 0);
    ASSERT_FALSE(speculator_.drafts_next());
    ASSERT_THAT(speculator_.take_ready(), IsEmpty());
  }
}

// Tokens behind which the proposer has nothing count, too.
TEST_F(SpeculatorTest, TheFirstDraftsAfterALongTimeAreAProbe) {
  for (int rows = 1; rows < 50; ++rows) speculator_.learn_step(1 + rows % 7, 1.0 + rows % 7);
  proposer_has_drafts_ = false;
  for (int i = 0; i < 2 * Speculator::kProbeInterval; ++i) step(4, 0, 0);
  EXPECT_THAT(next_drafts(4), IsEmpty());
  proposer_has_drafts_ = true;
  step(4, 0, 0);
  EXPECT_EQ(next_drafts(4).size(), 1u);
  step(4, 1, 0);
  EXPECT_THAT(next_drafts(4), IsEmpty());
}

// Text without a choice is drafted by others.
TEST_F(SpeculatorTest, DraftsOfOthersDoNotCount) {
  step(4, 0, 0);
  const size_t num_drafts = next_drafts(4).size();
  for (int i = 0; i < 20; ++i) step(4, 0, 6);
  EXPECT_EQ(num_tokens_.at(4), 4 + 20 * 7);
  EXPECT_EQ(next_drafts(4).size(), num_drafts);
}

TEST_F(SpeculatorTest, ASequenceThatEndedIsNotReady) {
  step(4, 0, 0);
  step(6, 0, 0);
  speculator_.remove(4);
  EXPECT_THAT(speculator_.take_ready(), ElementsAre(6));
}

TEST_F(SpeculatorTest, ASequenceIsReadyOnceForEachToken) {
  step(4, 0, 0);
  step(4, 0, 0);
  step(6, 0, 0);
  EXPECT_TRUE(speculator_.drafts_next());
  EXPECT_THAT(speculator_.take_ready(), ElementsAre(4, 6));
  EXPECT_THAT(speculator_.take_ready(), IsEmpty());
}

TEST_F(SpeculatorTest, DraftsThatAreKeptBecomeMore) {
  step(4, 0, 0);
  EXPECT_LT(next_drafts(4).size(), 8);
  for (int i = 0; i < 10; ++i) step(4, 4, 4);
  EXPECT_EQ(next_drafts(4).size(), 8);
}

TEST_F(SpeculatorTest, DraftsThatAreNotKeptEndButForProbes) {
  int64_t num_drafts = 0;
  size_t last = 0;
  for (int i = 0; i < 100; ++i) {
    step(4, last, 0);
    last = next_drafts(4).size();
  }
  for (int i = 0; i < 10 * Speculator::kProbeInterval; ++i) {
    step(4, last, 0);
    last = next_drafts(4).size();
    num_drafts += static_cast<int64_t>(last);
  }
  EXPECT_EQ(num_drafts, 10);
  // What others learned, a new sequence need not.
  step(5, 0, 0);
  EXPECT_LE(next_drafts(5).size(), 3);
  // Where they are kept again, that is noticed.
  for (int i = 0; i < 4 * Speculator::kProbeInterval; ++i) {
    step(4, last, last);
    last = next_drafts(4).size();
  }
  EXPECT_EQ(last, 8);
}

// Two steps bring tokens before the engine has waited for the one in flight.
TEST_F(SpeculatorTest, AProbeWaitsForTheTokensInFlight) {
  for (int rows = 1; rows < 50; ++rows) speculator_.learn_step(1 + rows % 7, 1.0 + rows % 7);
  int num_probes = 0;
  for (int i = 0; i < 4 * Speculator::kProbeInterval; ++i) {
    step(4, 0, 0);
    if (!speculator_.drafts_next()) continue;
    step(4, 0, 0);
    num_probes += next_drafts(4).empty() ? 0 : 1;
  }
  EXPECT_GE(num_probes, 3);
}

// The first step with drafts has others to make ready, so how long it took says nothing.
TEST_F(SpeculatorTest, AProbeIsRepeatedIfItsStepWasTheFirstOfItsKind) {
  for (int rows = 1; rows < 50; ++rows) speculator_.learn_step(1 + rows % 7, 1.0 + rows % 7);
  const auto undrafted_steps = [&] {
    int count = 0;
    while (next_drafts(4).empty()) {
      speculator_.learn_step(1 + count % 7, 1.0 + count % 7);
      step(4, 0, 0);
      ++count;
    }
    return count;
  };
  EXPECT_GT(undrafted_steps(), Speculator::kProbeInterval / 2);
  speculator_.skip_step();
  step(4, 1, 0);
  EXPECT_EQ(undrafted_steps(), 0);
  speculator_.learn_step(2, 2.0);
  step(4, 1, 0);
  EXPECT_GT(undrafted_steps(), Speculator::kProbeInterval / 2);
}

// Their rates differ by chance: for their own ones they would have two, three, four drafts.
TEST_F(SpeculatorTest, SequencesOfAStepHaveEquallyMany) {
  for (int i = 0; i < 50; ++i) speculator_.learn_step(10 + 20 * (i % 2), 1.0 + 0.5 * (i % 2));
  for (int id = 0; id < 10; ++id) step(static_cast<SequenceId>(id), 0, 0);
  (void)speculator_.take_ready();
  std::set<size_t> shared;
  for (int i = 0; i < 30; ++i) {
    for (int id = 0; id < 10; ++id) {
      const bool is_unlucky = (i + id) % 5 == 0;
      step(static_cast<SequenceId>(id), 4, is_unlucky ? 0 : 4);
    }
    std::set<size_t> counts;
    for (const SequenceId id : speculator_.take_ready()) {
      counts.insert(speculator_.propose(id).size());
    }
    EXPECT_LE(counts.size(), 1u);
    if (i >= 20) shared.insert(counts.begin(), counts.end());
  }
  EXPECT_EQ(shared.size(), 1u) << "the number stays";
}

TEST_F(SpeculatorTest, SequencesWhoseDraftsFailLeaveOthersTheirs) {
  for (int i = 0; i < 50; ++i) speculator_.learn_step(10 + 20 * (i % 2), 1.0 + 0.5 * (i % 2));
  for (int i = 0; i < 30; ++i) {
    for (int id = 0; id < 10; ++id) step(static_cast<SequenceId>(id), 8, id < 4 ? 8 : 0);
  }
  const std::vector<SequenceId> ready = speculator_.take_ready();
  EXPECT_THAT(ready, ElementsAre(0, 1, 2, 3));
  for (const SequenceId id : ready) EXPECT_EQ(speculator_.propose(id).size(), 8u);
}

class ManySequencesTest : public SpeculatorTest {
 protected:
  static constexpr int kMany = 100;

  // Steps without drafts, whose further rows cost nothing.
  ManySequencesTest() {
    for (int i = 0; i < 50; ++i) speculator_.learn_step(kMany + 20 * (i % 2), 1.0);
    for (int i = 0; i < 4; ++i) speculator_.learn_outcome(kMany, kMany, 1, false);
  }
  // Tokens of a step of all sequences; those from `num_good` on keep none of their drafts.
  void step_of_all(size_t num_drafts, int num_good) {
    speculator_.learn_step(kMany, 1.0);
    for (int id = 0; id < kMany; ++id) {
      step(static_cast<SequenceId>(id), num_drafts, id < num_good ? num_drafts : 0);
    }
  }
};

TEST_F(ManySequencesTest, DoNotWaitForTheDraftsOfFew) {
  for (const auto& [num_good, drafts] : {std::pair(24, false), std::pair(25, true)}) {
    for (int i = 0; i < 100; ++i) step_of_all(8, num_good);
    EXPECT_EQ(speculator_.drafts_next(), drafts) << num_good;
    EXPECT_EQ(speculator_.take_ready().size(), drafts ? num_good : 0);
  }
  // For those who are left they would.
  for (int id = 24; id < kMany - 20; ++id) speculator_.remove(static_cast<SequenceId>(id));
  step(0, 8, 8);
  EXPECT_TRUE(speculator_.drafts_next());
}

TEST_F(ManySequencesTest, AreSeldomProbed) {
  for (int i = 0; i < 100; ++i) step_of_all(8, 0);
  int num_probes = 0;
  for (int i = 0; i < 2 * Speculator::kRareProbeInterval; ++i) {
    step_of_all(0, 0);
    num_probes += speculator_.take_ready().empty() ? 0 : 1;
  }
  // Each time a part of the sequences that is enough.
  EXPECT_GE(num_probes, 2);
  EXPECT_LE(num_probes, 2 * static_cast<int>(Speculator::kLeastShare));
}

TEST_F(SpeculatorTest, RowsThatTakeAsLongAsTheyAreManyAreNotWorthDrafts) {
  for (int rows = 1; rows < 50; ++rows) speculator_.learn_step(1 + rows % 7, 1.0 + rows % 7);
  step(4, 0, 0);
  EXPECT_THAT(next_drafts(4), IsEmpty());
  EXPECT_FALSE(speculator_.drafts_next());
}

TEST_F(SpeculatorTest, RowsThatCostNothingAreWorthAllDrafts) {
  for (int rows = 1; rows < 50; ++rows) speculator_.learn_step(1 + rows % 7, 1.0);
  step(4, 0, 0);
  EXPECT_EQ(next_drafts(4).size(), 8);
}

// All drafts are kept, so that each step has as many rows as the one before. Where a row takes as
// long as a step of one, that is no use.
TEST_F(SpeculatorTest, StepsThatAreAlikeStillTellWhatDraftsCost) {
  for (const double row_s : {1.0, 0.0}) {
    Speculator speculator(std::make_unique<FakeProposer>(num_tokens_, proposer_has_drafts_), 8);
    int64_t num_drafts = 0;
    size_t last = 0;
    for (int i = 0; i < 1500; ++i) {
      speculator.learn_step(1 + static_cast<int64_t>(last),
                            1.0 + row_s * static_cast<double>(last));
      speculator.append(4, request_, std::vector<int32_t>(last + 1, 5), last);
      last = 0;
      for (const SequenceId id : speculator.take_ready()) last = speculator.propose(id).size();
      if (i >= 500) num_drafts += static_cast<int64_t>(last);
    }
    if (row_s > 0) {
      EXPECT_LT(num_drafts, 100);
    } else {
      EXPECT_GT(num_drafts, 7000);
    }
  }
}

// Steps of about 8 seconds, whatever their rows, and passes of a model that makes drafts.
class ModelDraftsTest : public SpeculatorTest {
 protected:
  void steps(int count, double drafting_s) {
    for (int i = 0; i < count; ++i) {
      speculator_.learn_step(1 + i % 7, 8.0 + 0.1 * (i % 7));
      speculator_.learn_drafting(3, 3, 3 * drafting_s, 0);
      step(4, 3, 3);
    }
  }
};

TEST_F(ModelDraftsTest, AreMoreTheLessTheyCost) {
  steps(50, 0.1);
  EXPECT_EQ(next_drafts(4).size(), 8);
  EXPECT_TRUE(speculator_.reads_prompts(1));
  steps(400, 3);
  const size_t fewer = next_drafts(4).size();
  EXPECT_GT(fewer, 0);
  // A pass that takes longer than a step never pays.
  for (int i = 0; i < 400; ++i) speculator_.learn_drafting(1, 1, 9, 0);
  step(4, 1, 1);
  EXPECT_THAT(next_drafts(4), IsEmpty());
  EXPECT_FALSE(speculator_.reads_prompts(1));
}

// Whether it is kept says nothing then.
TEST_F(ModelDraftsTest, AreSeldomTriedWhereOneTakesLongerThanAToken) {
  for (int i = 0; i < 3; ++i) speculator_.learn_drafting(1, 1, 9, 0);
  for (int i = 0; i < 500; ++i) speculator_.learn_step(1 + i % 7, 8.0);  // they may lose time again
  int num_probes = 0;
  for (int i = 0; i < 3 * Speculator::kRareProbeInterval; ++i) {
    step(4, 0, 0);
    num_probes += next_drafts(4).empty() ? 0 : 1;
  }
  EXPECT_GE(num_probes, 2);
  EXPECT_LE(num_probes, 3);
}

TEST_F(ModelDraftsTest, EndWhereReadingCostsMoreThanTheySave) {
  steps(50, 0.1);
  speculator_.learn_drafting(0, 0, 0, 100);
  step(4, 0, 0);
  EXPECT_THAT(next_drafts(4), IsEmpty());
  EXPECT_FALSE(speculator_.reads_prompts(1));
  for (int i = 0; i < 5 * Speculator::kProbeInterval; ++i) {
    step(4, 0, 0);
    ASSERT_THAT(next_drafts(4), IsEmpty());  // no probes, either
  }
  for (int i = 0; i < 2000; ++i) speculator_.learn_step(1, 8.0);
  step(4, 0, 0);
  EXPECT_FALSE(next_drafts(4).empty());
}

TEST_F(ModelDraftsTest, ReadNoPromptsWhileTheyPause) {
  constexpr size_t kMany = 100;
  EXPECT_TRUE(speculator_.reads_prompts(1));
  EXPECT_FALSE(speculator_.reads_prompts(kMany)) << "steps without drafts come first";
  for (int i = 0; i < 4; ++i) speculator_.learn_outcome(kMany, kMany, 1, false);
  EXPECT_TRUE(speculator_.reads_prompts(kMany));
  for (int i = 0; i < 2; ++i) speculator_.learn_outcome(kMany, kMany, 2, true);
  EXPECT_FALSE(speculator_.reads_prompts(kMany));
  EXPECT_TRUE(speculator_.reads_prompts(1));
}

TEST_F(ModelDraftsTest, AreAsManyAsAskedForWhereTheyNeedNotPay) {
  Speculator always(std::make_unique<FakeProposer>(num_tokens_, proposer_has_drafts_), 5, false);
  for (int i = 0; i < 100; ++i) {
    always.learn_step(1 + i % 7, 1.0 + i % 7);
    always.learn_drafting(5, 5, 50, 50);
    always.append(6, request_, std::vector<int32_t>{5}, 5);
  }
  ASSERT_THAT(always.take_ready(), ElementsAre(6));
  EXPECT_EQ(always.propose(6).size(), 5);
  EXPECT_TRUE(always.reads_prompts(1));
}

}  // namespace
}  // namespace quire
