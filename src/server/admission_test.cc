#include "server/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire::server {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class IdleEngine : public EnginePort {
 public:
  std::unique_ptr<OutputSource> submit(std::vector<int32_t>, const SamplingParams&, RequestOptions,
                                       std::function<void()>) override {
    return nullptr;
  }
  EngineStats stats() const override {
    EngineStats stats;
    stats.num_waiting = num_waiting;
    return stats;
  }
  int64_t num_waiting = 0;
};

class AdmissionTest : public testing::Test {
 protected:
  Admission make(int64_t max_queued, int64_t max_seqs) {
    return Admission({.max_num_queued_requests = max_queued, .max_num_seqs = max_seqs}, engine_);
  }
  // With --max-loras.
  Admission make_with_loras(int64_t max_seqs, int64_t max_loras) {
    return Admission(
        {.max_num_queued_requests = 1000, .max_num_seqs = max_seqs, .max_loras = max_loras},
        engine_);
  }
  // Whoever has its turn is written down as its client and adapter.
  void ask(Admission& admission, const std::string& client, const std::string& adapter,
           int64_t priority = 0) {
    std::string reason;
    admission.arrive(reason);
    const auto start = [this, name = client + ":" + adapter] { started_.push_back(name); };
    admission.enqueue(
        {.client = client, .num_prompt_tokens = 10, .start = start, .adapter = adapter}, priority);
    admission.pump();
  }
  void end(Admission& admission, const std::string& client, const std::string& adapter) {
    admission.finished(client, 1, now_, adapter);
    admission.pump();
  }

  Admission::Ticket come(Admission& admission, const std::string& client, int64_t sequences = 1,
                         int64_t priority = 0) {
    std::string reason;
    admission.arrive(reason);
    return admission.enqueue(
        {client, sequences, 10, [this, client] { started_.push_back(client); }}, priority);
  }

  IdleEngine engine_;
  std::vector<std::string> started_;
  Admission::Clock::time_point now_ = Admission::Clock::now();
};

TEST_F(AdmissionTest, GivesTurnsWhileThereIsRoom) {
  Admission admission = make(10, 3);
  for (const char* client : {"a", "a", "a", "a", "b"}) come(admission, client);
  admission.pump();
  EXPECT_THAT(started_, ElementsAre("a", "b", "a"));
  EXPECT_EQ(admission.num_queued(), 2);
  admission.finished("a", 1, now_);
  admission.pump();
  EXPECT_THAT(started_, ElementsAre("a", "b", "a", "a"));
}

TEST_F(AdmissionTest, WaitsWhereTheEngineHasEnoughWaiting) {
  Admission admission = make(10, 100);
  come(admission, "a");
  come(admission, "a");
  engine_.num_waiting = 32;
  admission.pump();
  EXPECT_THAT(started_, ElementsAre("a"));  // an engine without work always gets some
  engine_.num_waiting = 31;
  admission.pump();
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(AdmissionTest, RefusesWhenFullWithTheMeasuredWait) {
  Admission admission = make(2, 1);
  for (int i = 0; i < 3; ++i) come(admission, "a");
  admission.pump();
  std::string reason;
  try {
    admission.arrive(reason);
    FAIL() << "the queue was full";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 429);
    EXPECT_EQ(error.retry_after_s, 1);
    EXPECT_EQ(reason, "queue_full");
  }
  // One ends every 20 seconds: three places ahead of a new request make a minute.
  admission.finished("a", 1, now_);
  admission.pump();
  admission.finished("a", 1, now_ + seconds(20));
  come(admission, "a");
  EXPECT_EQ(admission.num_queued(), 2);
  EXPECT_EQ(admission.retry_after_s(), 60);
}

TEST_F(AdmissionTest, ARequestOfManySequencesLeavesTheQueueItsPlaces) {
  Admission admission = make(1, 1);
  come(admission, "a", 4);
  admission.pump();
  come(admission, "a");
  EXPECT_EQ(admission.num_queued(), 1);
  std::string reason;
  EXPECT_THROW(admission.arrive(reason), ApiError);
}

// What waits in the engine is shared there: a client that has little of it does not wait out here.
TEST_F(AdmissionTest, AFloodInTheEngineKeepsNobodyOutOfIt) {
  Admission admission = make(100, 8);
  come(admission, "flood", 8);
  come(admission, "flood", 8);
  admission.pump();
  engine_.num_waiting = 100;
  come(admission, "other", 2);
  come(admission, "flood");
  come(admission, "other", 2);
  admission.pump();
  EXPECT_THAT(started_, ElementsAre("flood", "other", "other"));
  come(admission, "other");
  admission.pump();
  EXPECT_EQ(started_.size(), 3u) << "it has its half of eight";
  // With many new clients, each of which has nothing in the engine, there is a limit all the same.
  for (int i = 0; i < 6; ++i) come(admission, "newcomer " + std::to_string(i));
  admission.pump();
  EXPECT_EQ(started_.size(), 3u + 4u);
}

TEST_F(AdmissionTest, ALargeRequestIsNotPassedForEver) {
  Admission admission = make(100, 8);
  come(admission, "large", 1);
  come(admission, "large", 8);
  admission.pump();
  for (int i = 0; i < 30; ++i) come(admission, "small " + std::to_string(i));
  admission.pump();
  EXPECT_EQ(std::ranges::count(started_, "large"), 1);
  admission.finished("large", 1, now_);
  admission.pump();
  EXPECT_EQ(std::ranges::count(started_, "large"), 2);
}

TEST_F(AdmissionTest, ARequestLargerThanTheEngineStillGetsItsTurn) {
  Admission admission = make(10, 4);
  come(admission, "a");
  come(admission, "a", 9);
  come(admission, "a");
  admission.pump();
  EXPECT_EQ(started_.size(), 1u);
  admission.finished("a", 1, now_);
  admission.pump();
  EXPECT_EQ(started_.size(), 2u);
  admission.finished("a", 9, now_);
  admission.pump();
  EXPECT_EQ(started_.size(), 3u);
}

TEST_F(AdmissionTest, WhatWaitsForAnAdapterKeepsNothingElseWaiting) {
  Admission admission = make_with_loras(512, 1);
  ask(admission, "x", "a");
  admission.adapter_is_read("a");
  for (int i = 0; i < 100; ++i) ask(admission, "x", "b");
  EXPECT_THAT(started_, ElementsAre("x:a"));
  ask(admission, "x", "");
  ask(admission, "x", "a");
  ask(admission, "y", "");
  EXPECT_THAT(started_, ElementsAre("x:a", "x:", "x:a", "y:"));
  end(admission, "x", "a");
  EXPECT_EQ(started_.size(), 4u);
  end(admission, "x", "a");
  EXPECT_EQ(started_.size(), 5u) << "the first has the adapter read, and the others wait for that";
  admission.adapter_is_read("b");
  admission.pump();
  EXPECT_EQ(std::ranges::count(started_, "x:b"), 100);
}

TEST_F(AdmissionTest, OneWhoseAdapterCannotBeReadLeavesTheRoomToTheNext) {
  Admission admission = make_with_loras(8, 1);
  ask(admission, "x", "broken");
  ask(admission, "x", "broken");
  ask(admission, "x", "b");
  EXPECT_EQ(started_.size(), 1u);
  end(admission, "x", "broken");
  end(admission, "x", "broken");
  EXPECT_THAT(started_, ElementsAre("x:broken", "x:broken", "x:b"));
}

// Neither a stream of requests for another adapter nor its own client's more urgent requests keep a
// request from its turn, and it keeps nothing from others that have no adapter.
TEST_F(AdmissionTest, WhoWaitsForAnAdapterIsPassedSoManyTimes) {
  Admission admission = make_with_loras(8, 1);
  ask(admission, "y", "a");
  admission.adapter_is_read("a");
  ask(admission, "x", "b", /*priority=*/9);
  for (int64_t i = 0; i < Admission::kMaxLoraOvertakes; ++i) {
    ask(admission, "y", "a");
    end(admission, "y", "a");
    ask(admission, "x", "");
    end(admission, "x", "");
  }
  ask(admission, "y", "a");
  EXPECT_EQ(std::ranges::count(started_, "y:a"), 1 + Admission::kMaxLoraOvertakes);
  ask(admission, "z", "");
  EXPECT_EQ(started_.back(), "z:");
  end(admission, "y", "a");
  EXPECT_EQ(started_.back(), "x:b");
  end(admission, "x", "b");
  EXPECT_EQ(started_.back(), "y:a");
}

TEST_F(AdmissionTest, WhoLeavesGetsNoTurn) {
  Admission admission = make(10, 1);
  const auto ticket = come(admission, "a");
  EXPECT_TRUE(admission.leave(ticket));
  EXPECT_FALSE(admission.leave(ticket));
  admission.pump();
  EXPECT_THAT(started_, IsEmpty());
}

TEST_F(AdmissionTest, ShuttingDownRefusesAndFinishes) {
  Admission admission = make(10, 1);
  come(admission, "a");
  admission.shut_down();
  std::string reason;
  EXPECT_THROW(admission.arrive(reason), ApiError);
  EXPECT_EQ(reason, "shutting_down");
  admission.pump();
  EXPECT_THAT(started_, ElementsAre("a"));
}

}  // namespace
}  // namespace quire::server
