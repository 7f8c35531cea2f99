#include "server/observe/trace_exporter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "http/server.h"
#include "quire/error.h"
#include "server/observe/http_post.h"

namespace quire::server {
namespace {

using testing::HasSubstr;

// Takes batches of spans, and answers with the statuses that it is told, then with 200.
class Collector {
 public:
  explicit Collector(std::vector<int> statuses = {}) : statuses_(std::move(statuses)) {
    http::Config config;
    config.port = 0;
    server_ = std::make_unique<http::Server>(std::move(config),
                                             [this](auto exchange) { take(*exchange); });
    server_->start();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1/traces", server_->port()); }
  // Waits until that many were taken; what waits is bounded only so that a hang fails.
  std::vector<nlohmann::json> spans(size_t at_least) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        came_.wait_for(lock, std::chrono::seconds(60), [&] { return spans_.size() >= at_least; }));
    return spans_;
  }
  size_t num_requests() {
    const std::lock_guard lock(mutex_);
    return num_requests_;
  }

 private:
  void take(http::Exchange& exchange) {
    http::Response response;
    {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(exchange.request().method, "POST");
      EXPECT_EQ(exchange.request().path, "/v1/traces");
      EXPECT_EQ(exchange.request().header("Content-Type"), "application/json");
      if (num_requests_ < statuses_.size()) response.status = statuses_[num_requests_];
      ++num_requests_;
      if (response.status == 200) {
        const nlohmann::json body = nlohmann::json::parse(exchange.take_body());
        for (const nlohmann::json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
          spans_.push_back(span);
        }
      }
    }
    came_.notify_all();
    response.body = "{}";
    exchange.respond(std::move(response));
  }

  const std::vector<int> statuses_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<nlohmann::json> spans_;
  size_t num_requests_ = 0;
  std::unique_ptr<http::Server> server_;
};

class TraceExporterTest : public testing::Test {
 protected:
  TraceExporterConfig config(const std::string& url) {
    return {.url = url,
            .delay = std::chrono::milliseconds(1),
            .first_pause = std::chrono::milliseconds(1),
            .warn = [this](const std::string& message) {
              const std::lock_guard lock(mutex_);
              warnings_.push_back(message);
            }};
  }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }
  static RequestRecord generation() {
    RequestRecord record;
    record.status = 200;
    return record;
  }

  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(TraceExporterTest, SendsASpanForEachGeneration) {
  Collector collector;
  TraceExporter exporter(config(collector.url()));
  for (int i = 0; i < 100; ++i) exporter.record(generation());
  std::set<std::string> traces;
  std::set<std::string> spans;
  for (const nlohmann::json& span : collector.spans(100)) {
    traces.insert(span["traceId"]);
    spans.insert(span["spanId"]);
    EXPECT_EQ(span["traceId"].get<std::string>().size(), 32u);
    EXPECT_EQ(span["spanId"].get<std::string>().size(), 16u);
  }
  EXPECT_EQ(traces.size(), 100u);
  EXPECT_EQ(spans.size(), 100u);
  EXPECT_EQ(exporter.lost_spans(), 0);
}

TEST_F(TraceExporterTest, FollowsItsClientsTrace) {
  Collector collector;
  TraceExporter exporter(config(collector.url()));
  RequestRecord record = generation();
  record.trace = TraceContext{.trace_id = std::string(32, 'a'), .parent_id = std::string(16, 'b')};
  exporter.record(record);  // which is not recorded
  record.trace->sampled = true;
  exporter.record(record);
  exporter.record(generation());
  const std::vector<nlohmann::json> spans = collector.spans(2);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["traceId"], std::string(32, 'a'));
  EXPECT_EQ(spans[0]["parentSpanId"], std::string(16, 'b'));
  EXPECT_FALSE(spans[1].contains("parentSpanId"));
}

TEST_F(TraceExporterTest, SendsAgainWhereTheCollectorIsBusy) {
  Collector collector({503, 429});
  TraceExporter exporter(config(collector.url()));
  exporter.record(generation());
  EXPECT_EQ(collector.spans(1).size(), 1u);
  EXPECT_EQ(collector.num_requests(), 3u);
  EXPECT_EQ(exporter.lost_spans(), 0);
}

TEST_F(TraceExporterTest, WhatIsRefusedIsLostAndSaid) {
  Collector collector({400});
  {
    TraceExporter exporter(config(collector.url()));
    exporter.record(generation());
    while (exporter.lost_spans() == 0) std::this_thread::yield();
    exporter.record(generation());
    EXPECT_EQ(collector.spans(1).size(), 1u);
  }
  EXPECT_EQ(collector.num_requests(), 2u);
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_THAT(warnings()[0], HasSubstr("spans lost: 1"));
  EXPECT_THAT(warnings()[0], HasSubstr("status 400"));
}

TEST_F(TraceExporterTest, AnEndpointThatIsDownLosesWhatDoesNotFit) {
  const std::string nobody = "http://127.0.0.1:1/v1/traces";
  TraceExporterConfig small = config(nobody);
  small.max_queued_spans = 10;
  small.max_batch_spans = 5;
  {
    TraceExporter exporter(small);
    for (int i = 0; i < 100; ++i) exporter.record(generation());
    EXPECT_GE(exporter.lost_spans(), 100 - 10 - 5);
    EXPECT_EQ(exporter.sent_spans(), 0);
  }
  ASSERT_FALSE(warnings().empty());
  EXPECT_LE(warnings().size(), 2u) << "one a minute, and the last";
  EXPECT_THAT(warnings().back(), HasSubstr(nobody));
}

TEST_F(TraceExporterTest, TheEndSendsWhatWaits) {
  Collector collector;
  TraceExporterConfig slow = config(collector.url());
  slow.delay = std::chrono::minutes(10);
  {
    TraceExporter exporter(slow);
    for (int i = 0; i < 5; ++i) exporter.record(generation());
  }
  EXPECT_EQ(collector.spans(5).size(), 5u);
  EXPECT_EQ(collector.num_requests(), 1u);
  EXPECT_TRUE(warnings().empty());
}

TEST(OtlpTracesUrl, IsCompletedAndChecked) {
  EXPECT_EQ(otlp_traces_url("http://localhost:4318"), "http://localhost:4318/v1/traces");
  EXPECT_EQ(otlp_traces_url("https://a.example/"), "https://a.example/v1/traces");
  EXPECT_EQ(otlp_traces_url("http://a.example/otlp?x=1"), "http://a.example/otlp?x=1");
  for (const char* wrong : {"", "a b", "localhost:4318", "ftp://a.example", "http://", "grpc://a:1",
                            "http://user:secret@a.example", "http://a.example/#x"}) {
    EXPECT_THROW(otlp_traces_url(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace quire::server
