#include "server/observe/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

RequestRecord record(const std::string& id, const std::string& owner = "a") {
  RequestRecord record;
  record.request_id = id;
  record.owner = owner;
  record.status = 200;
  return record;
}

RequestRecord logged_generation() {
  RequestRecord result = record("cmpl-1");
  result.finish_reason = "length";
  result.max_tokens = 64;
  result.prompt_tokens = 120;
  result.cached_tokens = 96;
  result.output_tokens = 65;
  result.queue_s = 0.012;
  result.prefill_s = 0.08;
  result.decode_s = 0.64;
  result.ttft_s = 0.092;
  result.total_s = 0.74;
  result.running_at_arrival = 8;
  result.waiting_at_arrival = 3;
  return result;
}

TEST(RequestLog, FindsWhatWasAdded) {
  RequestLog log({.max_requests = 4});
  log.add(logged_generation());
  const auto found = log.find("cmpl-1", "a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->output_tokens, 65);
  EXPECT_FALSE(log.find("cmpl-2", "a"));
}

TEST(RequestLog, OnlyForItsOwner) {
  RequestLog log({.max_requests = 4});
  log.add(record("x", "a"));
  EXPECT_TRUE(log.find("x", "a"));
  EXPECT_FALSE(log.find("x", "b"));
  EXPECT_FALSE(log.find("x", ""));
  EXPECT_FALSE(log.find("a\nx", ""));
}

TEST(RequestLog, ForgetsTheOldest) {
  RequestLog log({.max_requests = 3});
  for (const char* id : {"1", "2", "3", "4", "5"}) log.add(record(id));
  EXPECT_FALSE(log.find("1", "a"));
  EXPECT_FALSE(log.find("2", "a"));
  for (const char* id : {"3", "4", "5"}) EXPECT_TRUE(log.find(id, "a")) << id;
}

TEST(RequestLog, TheNewerOfOneIdCounts) {
  RequestLog log({.max_requests = 3});
  RequestRecord second = record("x");
  second.status = 500;
  log.add(record("x"));
  log.add(second);
  EXPECT_EQ(log.find("x", "a")->status, 500);
  log.add(record("y"));
  log.add(record("z"));  // in the place of the first x; the second stays
  EXPECT_EQ(log.find("x", "a")->status, 500);
  log.add(record("w"));
  EXPECT_FALSE(log.find("x", "a"));
}

TEST(RequestLog, AnotherOwnersIdHidesNothing) {
  RequestLog log({.max_requests = 3});
  log.add(record("x", "a"));
  log.add(record("x", "b"));
  EXPECT_TRUE(log.find("x", "a"));
}

TEST(RequestLog, CutsWhatIsLong) {
  RequestLog log({.max_requests = 2});
  RequestRecord large = record(std::string(100'000, 'i'));
  large.path = std::string(100'000, 'p');
  large.error = std::string(100'000, 'e');
  log.add(large);
  const auto found = log.find(large.request_id, "a");
  ASSERT_TRUE(found);
  EXPECT_LT(found->request_id.size() + found->path.size() + found->error.size(), 4096);
  EXPECT_THAT(found->error, EndsWith("e…"));
}

TEST(RequestLog, KeepsNoMoreBytesThanItMay) {
  RequestLog log({.max_requests = 1'000'000, .max_bytes = 64 << 10});
  const auto add = [&log](int id) {
    RequestRecord large = record(std::to_string(id));
    large.error = std::string(1000, 'e');
    log.add(large);
  };
  const auto kept = [&log] {
    int count = 0;
    for (int id = 0; id < 1000; ++id) count += log.find(std::to_string(id), "a") ? 1 : 0;
    return count;
  };
  for (int id = 0; id < 10; ++id) add(id);
  EXPECT_EQ(kept(), 10);
  for (int id = 10; id < 1000; ++id) add(id);
  EXPECT_GT(kept(), 10);
  EXPECT_LT(kept(), 65);
  EXPECT_TRUE(log.find("999", "a")) << "the newest stays";
}

TEST(RequestLog, MayKeepNothing) {
  RequestLog log({.max_requests = 0});
  log.add(record("x"));
  EXPECT_FALSE(log.find("x", "a"));
}

TEST(RequestLog, ManyThreads) {
  RequestLog log({.max_requests = 16});
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        log.add(record(std::to_string(i % 8), std::to_string(t % 2)));
        found += log.find(std::to_string(i % 8), std::to_string(t % 2)) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found, 0);
}

std::vector<std::string> explanation(const RequestRecord& record) {
  return nlohmann::json::parse(explain_request_json(record))["explanation"];
}

TEST(ExplainRequest, SaysWhereTimeWent) {
  EXPECT_THAT(
      explanation(logged_generation()),
      ElementsAre(
          "It queued for 12 ms, because when it came 8 requests were running and 3 waiting.",
          "Prefill took 80 ms for 120 prompt tokens, of which 96 came from the prefix "
          "cache, 300 tokens/s.",
          "Decoding took 640 ms for 64 output tokens after the first, 100 tokens/s.",
          "The other 8.00 ms of 740 ms went to sending the answer.",
          "It ended at max_tokens = 64 or the model's context length."));
}

TEST(ExplainRequest, OneTokenNeedsNoDecoding) {
  RequestRecord one = logged_generation();
  one.queue_s = 0;
  one.output_tokens = 1;
  one.decode_s = 0;
  one.finish_reason = "stop";
  const auto sentences = explanation(one);
  EXPECT_EQ(sentences.size(), 4);
  EXPECT_EQ(sentences.front(), "It was scheduled at once.");
  EXPECT_EQ(sentences.back(), "It ended where the model, a stop string or a stop token ended it.");
}

TEST(ExplainRequest, NothingBeforeIt) {
  RequestRecord first = logged_generation();
  first.running_at_arrival = 0;
  first.waiting_at_arrival = 0;
  EXPECT_EQ(explanation(first).front(),
            "It was read, tokenized and scheduled within 12 ms, with nothing before it.");
}

TEST(ExplainRequest, Refused) {
  RequestRecord refused = record("x");
  refused.status = 429;
  refused.reject_reason = "queue_full";
  EXPECT_THAT(explanation(refused),
              ElementsAre("It was refused after 0.00 ms with status 429 (queue_full)."));
}

TEST(ExplainRequest, NoGeneration) {
  RequestRecord bad = record("x");
  bad.status = 400;
  bad.total_s = 0.001;
  EXPECT_THAT(explanation(bad),
              ElementsAre("It was answered with status 400 after 1.00 ms, without generating."));
}

TEST(ExplainRequest, Disconnected) {
  RequestRecord gone = logged_generation();
  gone.finish_reason = "abort";
  gone.client_disconnected = true;
  EXPECT_EQ(explanation(gone).back(), "It ended because the client disconnected.");
  gone.output_tokens = 0;
  gone.total_s = 2;
  EXPECT_THAT(explanation(gone), ElementsAre("It had no output token yet after 2.0 s.",
                                             "It ended because the client disconnected."));
  gone.finish_reason = "";
  EXPECT_THAT(explanation(gone),
              ElementsAre("The client disconnected after 2.0 s, before generation."));
}

TEST(ExplainRequest, SaysWhatTheEngineDid) {
  RequestRecord busy = logged_generation();
  busy.steps = 60;
  busy.preemptions = 2;
  busy.draft_tokens = 40;
  busy.accepted_draft_tokens = 10;
  const auto sentences = explanation(busy);
  EXPECT_EQ(sentences.at(2),
            "It gave its KV blocks up to other requests 2 times, and computed its tokens again.");
  EXPECT_EQ(sentences.at(3),
            "Of 40 draft tokens that it was given, 10 were kept: it took 60 steps.");
  const auto json = nlohmann::json::parse(explain_request_json(busy));
  EXPECT_EQ(json["engine"]["steps"], 60);
  EXPECT_EQ(json["engine"]["preemptions"], 2);
  EXPECT_EQ(json["engine"]["draft_tokens"], 40);
  EXPECT_EQ(json["engine"]["accepted_draft_tokens"], 10);
}

TEST(ExplainRequest, OneThatIsNotOver) {
  RequestRecord live = record("x");
  live.stage = RequestStage::kQueued;
  live.status = 0;
  live.total_s = 2;
  live.running_at_arrival = 1;
  live.waiting_at_arrival = 4;
  EXPECT_THAT(
      explanation(live),
      ElementsAre("It has waited for its turn for 2.0 s; when it came 1 request was running "
                  "and 4 waiting."));
  auto json = nlohmann::json::parse(explain_request_json(live));
  EXPECT_EQ(json["state"], "queued");
  EXPECT_TRUE(json["status"].is_null());
  EXPECT_TRUE(json["first_token_at"].is_null());
  live.stage = RequestStage::kRunning;
  EXPECT_THAT(explanation(live),
              ElementsAre("The engine has it, and it had no output token yet after 2.0 s."));
  live.output_tokens = 5;
  EXPECT_EQ(explanation(live).back(), "It has 5 output tokens after 2.0 s.");
  EXPECT_EQ(nlohmann::json::parse(explain_request_json(live))["state"], "running");
}

TEST(ExplainRequest, SaysWhenTokensCame) {
  RequestRecord one = logged_generation();
  one.arrived = std::chrono::system_clock::time_point(std::chrono::milliseconds(1763709402000));
  const auto json = nlohmann::json::parse(explain_request_json(one));
  EXPECT_EQ(json["created_at"], "2025-11-21T07:16:42.000Z");
  EXPECT_EQ(json["first_token_at"], "2025-11-21T07:16:42.092Z");
  EXPECT_EQ(json["last_token_at"], "2025-11-21T07:16:42.732Z");
  EXPECT_EQ(json["state"], "finished");
}

TEST(ExplainRequest, Json) {
  RequestRecord odd = logged_generation();
  odd.owner = "owner-hash";
  odd.path = "/\xff";
  const std::string text = explain_request_json(odd);
  EXPECT_EQ(text.find("owner-hash"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["id"], "cmpl-1");
  EXPECT_EQ(json["object"], "request");
  EXPECT_EQ(json["path"], "/\xEF\xBF\xBD");
  EXPECT_EQ(json["usage"]["cached_tokens"], 96);
  EXPECT_EQ(json["seconds"]["queue"], 0.012);
  EXPECT_EQ(json["parameters"]["max_tokens"], 64);
  EXPECT_TRUE(json["parameters"]["top_p"].is_null());
  EXPECT_TRUE(json["error"].is_null());
}

}  // namespace
}  // namespace quire::server
