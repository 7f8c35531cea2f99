// Each allocation of the threads that write the log and send traces fails once, in turn: they go
// on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "http/test_client.h"
#include "low_memory/failing_allocator.h"
#include "server/observe/access_log.h"
#include "server/observe/trace_exporter.h"

namespace quire::server {
namespace {

using low_memory::FailOne;

TEST(LowMemoryTraces, EachSpanIsSent) {
  low_memory::exempt_this_thread();
  http::TestServer collector({{"/v1/traces", [](const std::shared_ptr<http::Exchange>& exchange) {
                                 low_memory::exempt_this_thread();
                                 exchange->respond(http::Response());
                               }}});
  TraceExporter traces(
      {.url = "http://127.0.0.1:" + std::to_string(collector.port()) + "/v1/traces",
       .delay = std::chrono::milliseconds(0),
       .first_pause = std::chrono::milliseconds(1),
       .warn = [](const std::string&) {}});
  RequestRecord record;
  record.request_id = "r";
  traces.record(record);  // the collector's thread is exempt from here on
  ASSERT_TRUE(http::eventually([&] { return traces.sent_spans() == 1; }));
  long index = 0;
  for (bool failed = true; failed; ++index) {
    const FailOne fail(index);
    traces.record(record);
    ASSERT_TRUE(http::eventually([&] { return traces.sent_spans() == index + 2; })) << index;
    failed = fail.failed();
  }
  EXPECT_EQ(traces.lost_spans(), 0);
  EXPECT_GT(index, 3);
}

// A collector that is not there: it is warned of, and what is queued is lost in the end.
TEST(LowMemoryTraces, LossesAreCounted) {
  low_memory::exempt_this_thread();
  long index = 0;
  for (bool failed = true; failed; ++index) {
    std::atomic<int> num_warnings = 0;
    std::atomic<int> num_lost = 0;
    const FailOne fail(index);
    {
      TraceExporter traces({.url = "http://127.0.0.1:1/v1/traces",
                            .delay = std::chrono::milliseconds(0),
                            .first_pause = std::chrono::milliseconds(1),
                            .last_sends = std::chrono::milliseconds(0),
                            .warn = [&](const std::string& warning) {
                              const size_t number = warning.rfind(' ') + 1;
                              num_lost += std::stoi(warning.substr(number));
                              ++num_warnings;
                            }});
      traces.record({});
      ASSERT_TRUE(http::eventually([&] { return num_warnings > 0; })) << index;
      failed = fail.failed();
    }
    EXPECT_EQ(num_lost, 1) << index;
  }
  EXPECT_GT(index, 10);
}

// A pipe whose reader drains it only now and then.
TEST(LowMemoryAccessLog, ItSaysWhatWasLost) {
  low_memory::exempt_this_thread();
  long index = 0;
  for (bool failed = true; failed; ++index) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    std::string read_text;
    {
      AccessLog log({.format = LogFormat::kText, .fd = ends[1], .max_queued_bytes = 200});
      const FailOne fail(index);
      log.info(std::string(1000, 'x'));  // lost at once
      log.info("kept");
      ASSERT_TRUE(log.flush(std::chrono::seconds(60)));
      failed = fail.failed();
    }
    close(ends[1]);
    std::array<char, 4096> buffer{};
    for (ssize_t size = 0; (size = read(ends[0], buffer.data(), buffer.size())) > 0;) {
      read_text.append(buffer.data(), static_cast<size_t>(size));
    }
    close(ends[0]);
    EXPECT_NE(read_text.find("kept"), std::string::npos) << index;
    EXPECT_EQ(read_text.find("1 log lines were lost") == std::string::npos, failed)
        << index << read_text;
  }
  EXPECT_GT(index, 1);
}

}  // namespace
}  // namespace quire::server
