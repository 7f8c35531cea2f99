// Clients that leave, and clients that read too slowly.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "http/server.h"
#include "http/test_client.h"

namespace quire::http {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

// A route that keeps its exchanges and counts those whose client has gone.
struct Kept {
  std::mutex mutex;
  std::vector<ExchangePtr> exchanges;
  std::atomic<int> arrived{0};
  std::atomic<int> closed{0};

  TestServer::Route route(bool stream) {
    return [this, stream](ExchangePtr exchange) {
      exchange->on_closed([this] { ++closed; });
      if (stream) {
        exchange->begin_stream({});
        exchange->write("begun");
      }
      const std::lock_guard lock(mutex);
      exchanges.push_back(std::move(exchange));
      ++arrived;
    };
  }
};

enum class Leaves { kByFin, kByReset };

class Disconnect : public testing::TestWithParam<std::tuple<bool, Leaves>> {};

TEST_P(Disconnect, IsNoticedWhileTheAnswerIsMade) {
  const auto [stream, leaves] = GetParam();
  Kept kept;
  TestServer server({{"/keep", kept.route(stream)}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/keep"));
  if (stream) {
    ASSERT_TRUE(client.read_past("begun"));
  } else {
    ASSERT_TRUE(eventually([&] { return kept.arrived == 1; }));
  }
  EXPECT_EQ(server.server().num_active(), 1);
  if (leaves == Leaves::kByFin) {
    client.end_output();
  } else {
    client.reset();
  }
  EXPECT_TRUE(eventually([&] { return kept.closed == 1; }));
  EXPECT_TRUE(kept.exchanges.front()->closed());
  EXPECT_TRUE(eventually(
      [&] { return server.server().num_active() == 0 && server.stats().open_connections == 0; }));
  kept.exchanges.clear();  // answers nobody
  EXPECT_EQ(TestClient(server.port()).fetch("/echo").status, 200);
  EXPECT_EQ(kept.closed, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Disconnect,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Leaves::kByFin, Leaves::kByReset)));

TEST(HttpDisconnect, IsNoticedBehindPipelinedBytes) {
  Kept kept;
  TestServer server({{"/keep", kept.route(false)}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/keep") && client.get("/keep"));
  client.end_output();
  EXPECT_TRUE(eventually([&] { return kept.closed == 1; }));
  EXPECT_EQ(kept.arrived, 1);
}

TEST(HttpDisconnect, IsToldToAWriterThatAsksLate) {
  Kept kept;
  TestServer server({{"/keep", kept.route(false)}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/keep"));
  client.end_output();
  ASSERT_TRUE(eventually([&] { return kept.closed == 1; }));
  std::atomic<bool> told{false};
  kept.exchanges.front()->on_closed([&] { told = true; });
  EXPECT_TRUE(eventually([&] { return told.load(); }));
}

TEST(HttpDisconnect, BeforeAWholeRequestConcernsNobody) {
  TestServer server;
  for (const std::string bytes :
       {"", "G", "GET /echo HTTP/1.1\r\nHost",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha"}) {
    for (const Leaves leaves : {Leaves::kByFin, Leaves::kByReset}) {
      TestClient client(server.port());
      ASSERT_TRUE(client.send(bytes));
      if (leaves == Leaves::kByReset) {
        client.reset();
        continue;
      }
      client.end_output();
      client.read_to_end();
      EXPECT_TRUE(client.ended());
    }
  }
  EXPECT_TRUE(eventually([&] { return server.stats().open_connections == 0; }));
  EXPECT_EQ(TestClient(server.port()).fetch("/echo").status, 200);
}

TEST(HttpDisconnect, AHalfClosedClientStillGetsACompleteAnswer) {
  TestServer server;
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/echo"));
  client.end_output();
  EXPECT_EQ(client.response().status, 200);
  client.read_to_end();
  EXPECT_TRUE(client.ended());
}

TEST(HttpDisconnect, CallbacksAreNotCalledAfterACompleteAnswer) {
  std::atomic<int> closed{0};
  TestServer server({{"/done", [&](ExchangePtr exchange) {
                        exchange->on_closed([&closed] { ++closed; });
                        exchange->respond({});
                      }}});
  {
    TestClient client(server.port());
    EXPECT_EQ(client.fetch("/done").status, 200);
    client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.stats().open_connections == 0; }));
  EXPECT_EQ(closed, 0);
}

TEST(HttpDisconnect, ACallbackMayOwnItsExchange) {
  std::weak_ptr<Exchange> answered;
  std::weak_ptr<Exchange> left;
  TestServer server({{"/answered",
                      [&](ExchangePtr exchange) {
                        answered = exchange;
                        exchange->on_closed([exchange] {});
                        exchange->on_drain([exchange] {});
                        exchange->respond({});
                      }},
                     {"/left", [&](ExchangePtr exchange) {
                        left = exchange;
                        exchange->on_closed([exchange] {});
                        exchange->begin_stream({});
                      }}});
  TestClient client(server.port());
  EXPECT_EQ(client.fetch("/answered").status, 200);
  EXPECT_TRUE(eventually([&] { return answered.expired(); }));
  ASSERT_TRUE(client.get("/left") && client.read_past("\r\n\r\n"));
  client.reset();
  EXPECT_TRUE(eventually([&] { return left.expired(); }));
}

// What a route told of how its answer ended.
struct Ends {
  std::atomic<int> delivered{0};
  std::atomic<int> lost{0};

  TestServer::Route respond(std::size_t size) {
    return [this, size](const ExchangePtr& exchange) {
      watch(*exchange);
      Response response;
      response.body.assign(size, 'x');
      exchange->respond(std::move(response));
    };
  }
  void watch(Exchange& exchange) {
    exchange.on_end([this](bool whole) { ++(whole ? delivered : lost); });
  }
};

TEST(HttpEnd, IsToldOnceTheSystemHasTakenTheAnswer) {
  Ends ends;
  TestServer server({{"/small", ends.respond(3)}, {"/large", ends.respond(9 << 20)}});
  TestClient client(server.port());
  EXPECT_EQ(client.fetch("/small").body.size(), 3U);
  EXPECT_EQ(client.fetch("/large").body.size(), 9U << 20);
  EXPECT_TRUE(eventually([&] { return ends.delivered == 2; }));
  EXPECT_EQ(ends.lost, 0);
}

// However the client leaves, and although the answer is complete.
TEST(HttpEnd, AWholeAnswerThatNobodyReadsIsLost) {
  Config config;
  config.limits.write_timeout = std::chrono::milliseconds(50);
  Ends ends;
  TestServer server({{"/large", ends.respond(64 << 20)}}, config);
  TestClient stalled(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(stalled.get("/large") && stalled.read_past("\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return ends.lost == 1; }));
  TestClient reset(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(reset.get("/large") && reset.read_past("\r\n\r\n"));
  reset.reset();
  EXPECT_TRUE(eventually([&] { return ends.lost == 2; }));
  EXPECT_EQ(ends.delivered, 0);
}

TEST(HttpEnd, IsToldToOneWhoAsksLate) {
  Kept kept;
  TestServer server({{"/keep", kept.route(false)}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/keep"));
  client.end_output();
  ASSERT_TRUE(eventually([&] { return kept.closed == 1; }));
  Ends ends;
  ends.watch(*kept.exchanges.front());
  EXPECT_TRUE(eventually([&] { return ends.lost == 1; }));
}

// Writes until more than the high-water mark waits, again and again as it drains.
TEST(SlowReader, IsWrittenToAsItDrains) {
  constexpr std::size_t kTotal = 20 << 20;
  const std::string piece(10'000, 'x');
  std::atomic<int> drains{0};
  std::atomic<std::size_t> most{0};
  std::function<void(const ExchangePtr&)> write_on = [&](const ExchangePtr& exchange) {
    static std::atomic<std::size_t> written{0};
    while (written < kTotal && exchange->buffered() <= Exchange::kStreamHighWater) {
      exchange->write(piece);
      written += piece.size();
      most = std::max(most.load(), exchange->buffered());
    }
    if (written >= kTotal && written < 2 * kTotal) {
      written = 2 * kTotal;
      exchange->finish();
    }
  };
  TestServer server({{"/stream", [&](ExchangePtr exchange) {
                        exchange->on_drain([&, weak = std::weak_ptr(exchange)] {
                          ++drains;
                          if (const ExchangePtr kept = weak.lock()) write_on(kept);
                        });
                        exchange->on_closed([exchange] {});
                        exchange->begin_stream({});
                        write_on(exchange);
                      }}});
  TestClient client(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(client.get("/stream"));
  const TestResponse response = client.response();
  EXPECT_TRUE(response.whole);
  EXPECT_GE(response.body.size(), kTotal);
  EXPECT_EQ(response.body.find_first_not_of('x'), std::string::npos);
  EXPECT_GT(drains, 0);
  EXPECT_LT(most, Exchange::kStreamHighWater + 2 * piece.size());
}

TEST(SlowReader, IsCutOffWhereTooMuchWaits) {
  Config config;
  config.limits.max_buffered_bytes = 1 << 20;
  Kept kept;
  TestServer server({{"/keep", kept.route(true)}}, config);
  TestClient client(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(client.get("/keep") && client.read_past("begun"));
  const ExchangePtr exchange = kept.exchanges.front();
  const std::string piece(64 << 10, 'x');
  ASSERT_TRUE(eventually([&] {
    exchange->write(piece);
    EXPECT_LE(exchange->buffered(), (1U << 20) + piece.size() + 1000);
    return kept.closed == 1;
  }));
  exchange->write(piece);
  exchange->finish();
  EXPECT_EQ(server.stats().dropped_slow_readers, 1);
  EXPECT_TRUE(eventually([&] { return server.stats().open_connections == 0; }));
}

TEST(SlowReader, IsCutOffWithoutProgress) {
  Config config;
  config.limits.write_timeout = std::chrono::milliseconds(50);
  Kept kept;
  TestServer server({{"/keep", kept.route(true)}}, config);
  TestClient client(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(client.get("/keep") && client.read_past("begun"));
  kept.exchanges.front()->write(std::string(8 << 20, 'x').substr(1));
  EXPECT_TRUE(eventually([&] { return kept.closed == 1; }));
  EXPECT_EQ(server.stats().dropped_slow_readers, 1);
}

TEST(SlowReader, CostsTheOthersNothing) {
  Kept kept;
  TestServer server({{"/keep", kept.route(true)}});
  TestClient slow(server.port(), {.receive_buffer = 4096});
  ASSERT_TRUE(slow.get("/keep") && slow.read_past("begun"));
  kept.exchanges.front()->write(std::string(4 << 20, 'x'));
  TestClient quick(server.port());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(quick.fetch("/echo").status, 200);
  EXPECT_EQ(kept.closed, 0);
}

}  // namespace
}  // namespace quire::http
