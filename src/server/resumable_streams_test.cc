// Streams that clients lose and go on with: through the service, and without it.
#include "server/resumable_streams.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/timer_queue.h"
#include "server/api/api_error.h"
#include "server/service_fixture.h"

namespace quire::server {
namespace {

using testing::EndsWith;
using testing::StartsWith;

// The events of a stream, each with its id and its end.
std::vector<std::string> events_of(std::string_view text) {
  std::vector<std::string> events;
  for (size_t end = text.find("\n\n"); end != std::string_view::npos; end = text.find("\n\n")) {
    events.emplace_back(text.substr(0, end + 2));
    text.remove_prefix(end + 2);
  }
  return events;
}

class ResumedStreamTest : public ServiceTest {
 protected:
  // A stream of the engine's pace, whose id is "abc".
  std::shared_ptr<FakeExchange> start(int max_tokens, http::Headers headers = {}) {
    headers.emplace_back("X-Request-Id", "abc");
    return call("POST", "/v1/completions",
                fmt::format(R"({{"prompt": [1, 2, 3], "stream": true, "max_tokens": {},
                                "stream_options": {{"resumable": true}}}})",
                            max_tokens),
                std::move(headers));
  }
  std::shared_ptr<FakeExchange> resume(const std::string& last_event_id,
                                       http::Headers headers = {}) {
    if (!last_event_id.empty()) headers.emplace_back("Last-Event-ID", last_event_id);
    return call("GET", "/v1/requests/abc/events", "", std::move(headers));
  }
  void wait_for_events(const FakeExchange& exchange, size_t at_least) {
    ASSERT_TRUE(loop_.run_until([&] { return events_of(exchange.written).size() >= at_least; }));
  }
};

TEST_F(ResumedStreamTest, GoesOnToTheByte) {
  const auto whole = start(20);
  finish(*whole);
  const std::vector<std::string> events = events_of(whole->written);
  ASSERT_GE(events.size(), 2u);
  EXPECT_THAT(events[0], StartsWith("id: 1\ndata: {"));
  EXPECT_THAT(events.back(), EndsWith("\ndata: [DONE]\n\n"));
  for (size_t had = 0; had <= events.size(); ++had) {
    const auto resumed = resume(had == 0 ? "" : std::to_string(had));
    EXPECT_EQ(resumed->response->status, 200);
    EXPECT_THAT(resumed->response->content_type, StartsWith("text/event-stream"));
    std::string expected;
    for (size_t i = had; i < events.size(); ++i) expected += events[i];
    EXPECT_EQ(resumed->written, expected) << had;
    EXPECT_TRUE(resumed->complete);
  }
}

TEST_F(ResumedStreamTest, TheGenerationGoesOnWithoutItsClient) {
  engine_.hold(true);
  const auto first = start(20);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  EXPECT_EQ(body_of(*call("GET", "/v1/requests/abc"))["state"], "running");
  engine_.hold(false);
  ASSERT_TRUE(loop_.run_until([this] { return service().num_generations() == 0; }));
  const auto second = resume("");
  EXPECT_THAT(second->written, EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(second->complete);
  EXPECT_EQ(body_of(*call("GET", "/v1/requests/abc"))["usage"]["completion_tokens"], 20);
}

TEST_F(ResumedStreamTest, AClientThatIsBackTakesOverFromOneThatSeemsToBeThere) {
  engine_.hold(true);
  const auto first = start(20);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  const auto second = resume("");
  engine_.hold(false);
  finish(*second);
  EXPECT_FALSE(first->complete) << "it is cut off";
  EXPECT_EQ(events_of(second->written).size(),
            std::stoul(second->written.substr(second->written.rfind("id: ") + 4)));
  first->disconnect();
  EXPECT_EQ(resume("1")->response->status, 200);
}

TEST_F(ResumedStreamTest, OnlyItsOwnerMay) {
  config_.api_keys = {"mine", "yours"};
  const http::Headers mine = {{"Authorization", "Bearer mine"}};
  const auto whole = start(3, mine);
  finish(*whole);
  EXPECT_EQ(resume("", {{"Authorization", "Bearer yours"}})->response->status, 404);
  EXPECT_EQ(resume("")->response->status, 401);
  EXPECT_EQ(resume("", mine)->response->status, 200);
}

TEST_F(ResumedStreamTest, RefusesWhatItDoesNotHave) {
  EXPECT_EQ(resume("")->response->status, 404);
  const auto whole = start(3);
  finish(*whole);
  const size_t last = events_of(whole->written).size();
  EXPECT_EQ(resume(std::to_string(last))->response->status, 200);
  for (const std::string& wrong : {std::to_string(last + 1), std::string("-1"), std::string("x"),
                                   std::string("99999999999999999999")}) {
    EXPECT_EQ(resume(wrong)->response->status, 400) << wrong;
  }
  EXPECT_EQ(call("HEAD", "/v1/requests/abc/events")->response->status, 405);
  const auto plain =
      call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 1, "stream": true})",
           {{"X-Request-Id", "plain"}});
  finish(*plain);
  EXPECT_EQ(call("GET", "/v1/requests/plain/events")->response->status, 404);
  EXPECT_EQ(call("GET", "/v1/requests/cmpl-abc/events")->response->status, 200);
}

TEST_F(ResumedStreamTest, WithoutAClientItEndsInTime) {
  config_.resumable.resume_within = std::chrono::milliseconds(1);
  engine_.hold(true);
  const auto first = start(900);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  ASSERT_TRUE(loop_.run_until([this] {
    return body_of(*call("GET", "/v1/requests/abc"))["state"] == "finished" ||
           (loop_.post([] {}), false);
  }));
  const auto facts = body_of(*call("GET", "/v1/requests/abc"));
  EXPECT_EQ(facts["client_disconnected"], true);
  EXPECT_EQ(facts["finish_reason"], "abort");
  EXPECT_EQ(resume("")->response->status, 404);
  engine_.hold(false);
  wait_until_engine_idle();
}

TEST_F(ResumedStreamTest, WaitsOnceTooMuchIsKept) {
  config_.resumable.max_stream_bytes = 2000;
  engine_.hold(true);
  const auto first = start(400);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  engine_.hold(false);
  wait_until_engine_idle();
  const auto second = resume("");
  finish(*second);
  const std::vector<std::string> events = events_of(second->written);
  EXPECT_THAT(events.front(), StartsWith("id: 1\n")) << "nothing was lost while it was away";
  EXPECT_THAT(second->written, EndsWith("data: [DONE]\n\n"));
}

// The streams themselves, with the test in the generation's place.
class ResumableStreamsTest : public ServiceTest {
 protected:
  static constexpr const char* kEvent = "data: 0123456789\n\n";
  static constexpr size_t kEventBytes = 24;  // with an id of one digit

  std::shared_ptr<ResumableStreams> make(ResumableConfig config) {
    return std::make_shared<ResumableStreams>(
        config, memory_, timers_,
        [this](std::function<void()> task) { loop_.post(std::move(task)); });
  }
  static std::shared_ptr<FakeExchange> client() {
    return std::make_shared<FakeExchange>(http::Request{});
  }
  static int status_of(ResumableStreams& streams, const std::string& event) {
    const auto exchange = client();
    try {
      streams.resume(exchange, {}, "me", "abc", event);
      return exchange->response->status;
    } catch (const ApiError& error) {
      return error.status;
    }
  }

  const std::shared_ptr<MemoryAccount> memory_ = std::make_shared<MemoryAccount>(1 << 20);
  TimerQueue timers_;
};

TEST_F(ResumableStreamsTest, WhatIsOldIsGone) {
  const auto streams = make({.max_stream_bytes = 6 * kEventBytes});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  stream->begin_stream({});
  for (int i = 0; i < 9; ++i) stream->write(kEvent);
  EXPECT_EQ(events_of(first->written).size(), 9u);
  EXPECT_EQ(streams->bytes(), 3 * kEventBytes) << "half of what may be kept";
  EXPECT_EQ(status_of(*streams, "5"), 410);
  EXPECT_EQ(status_of(*streams, ""), 410);
  EXPECT_EQ(status_of(*streams, "10"), 400);
  const auto second = client();
  streams->resume(second, {}, "me", "abc", "6");
  EXPECT_EQ(second->written, fmt::format("id: 7\n{0}id: 8\n{0}id: 9\n{0}", kEvent));
}

TEST_F(ResumableStreamsTest, AFullOneHasItsGenerationWait) {
  const auto streams = make({.max_stream_bytes = 6 * kEventBytes});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  int drained = 0;
  stream->on_drain([&drained] { ++drained; });
  stream->begin_stream({});
  stream->write(kEvent);
  first->disconnect();
  int written = 1;
  for (; stream->buffered() <= http::Exchange::kStreamHighWater; ++written) stream->write(kEvent);
  EXPECT_EQ(written, 6);
  EXPECT_FALSE(stream->closed());
  drained = 0;
  const auto second = client();
  streams->resume(second, {}, "me", "abc", "1");
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(events_of(second->written).size(), 5u);
  EXPECT_EQ(stream->buffered(), 0u);
}

TEST_F(ResumableStreamsTest, AClientThatReadsSlowlyGetsWhatItTakes) {
  const auto streams = make({});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  stream->begin_stream({});
  for (int i = 0; i < 5; ++i) stream->write(kEvent);
  const auto slow = client();
  slow->buffered_bytes = http::Exchange::kStreamHighWater + 1;
  streams->resume(slow, {}, "me", "abc", "");
  EXPECT_EQ(slow->written, "");
  EXPECT_GT(stream->buffered(), http::Exchange::kStreamHighWater);
  stream->finish();
  EXPECT_FALSE(slow->complete);
  slow->buffered_bytes = 0;
  slow->drained();
  EXPECT_EQ(events_of(slow->written).size(), 5u);
  EXPECT_TRUE(slow->complete);
}

TEST_F(ResumableStreamsTest, AllTogetherKeepNoMoreThanTheyMay) {
  const auto streams = make({.max_bytes = 10 * kEventBytes});
  for (int i = 0; i < 20; ++i) {
    const auto stream = streams->adopt(client(), "me", std::to_string(i));
    stream->begin_stream({});
    stream->write(kEvent);
    stream->finish();
  }
  EXPECT_LE(streams->bytes(), 10 * kEventBytes);
  const auto newest = client();
  streams->resume(newest, {}, "me", "19", "");
  EXPECT_EQ(events_of(newest->written).size(), 1u);
  EXPECT_THROW(streams->resume(client(), {}, "me", "0", ""), ApiError);
}

TEST_F(ResumableStreamsTest, WhatIsKeptIsOnTheAccountOfAllRequests) {
  const auto streams = make({});
  MemoryCharge others(memory_);
  ASSERT_TRUE(others.resize(memory_->limit() - static_cast<int64_t>(4 * kEventBytes)));
  const auto first = client();
  auto stream = streams->adopt(first, "me", "abc");
  stream->begin_stream({});
  first->disconnect();
  int written = 0;
  for (; stream->buffered() <= http::Exchange::kStreamHighWater; ++written) stream->write(kEvent);
  EXPECT_EQ(written, 5) << "the first that finds no memory is kept, and the last";
  EXPECT_EQ(memory_->used(), memory_->limit());
  EXPECT_EQ(memory_->num_refused(), 0);
  ASSERT_TRUE(others.resize(0));
  EXPECT_EQ(stream->buffered(), 0u);
  EXPECT_EQ(memory_->used(), static_cast<int64_t>(streams->bytes()));
  stream.reset();
  EXPECT_EQ(memory_->used(), 0);
}

TEST_F(ResumableStreamsTest, SaysWhetherTheLastClientGotAll) {
  const auto streams = make({});
  for (const bool delivered : {true, false}) {
    const auto first = client();
    first->is_read = delivered;
    auto stream = streams->adopt(first, "me", "abc");
    stream->begin_stream({});
    stream->write(kEvent);
    stream->finish();
    std::optional<bool> said;
    stream->on_end([&said](bool all) { said = all; });
    stream.reset();  // the generation is over
    if (!delivered) {
      first->disconnect();
      EXPECT_FALSE(said) << "somebody may come back";
      streams->resume(client(), {}, "me", "abc", "");
    }
    ASSERT_TRUE(loop_.run_until([&said] { return said.has_value(); }));
    EXPECT_TRUE(*said);
  }
}

TEST_F(ResumedStreamTest, ARefusalIsAnAnswerLikeAnyOther) {
  const auto refused = start(998);
  finish(*refused);
  EXPECT_EQ(refused->response->status, 400);
  EXPECT_EQ(resume("")->response->status, 404);
}

}  // namespace
}  // namespace quire::server
