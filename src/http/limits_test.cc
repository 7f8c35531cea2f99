// What clients do wrong, by mistake or on purpose: each costs its own connection and nothing else.
#include "http/limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "http/server.h"
#include "http/test_client.h"

namespace quire::http {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
using std::chrono::milliseconds;

constexpr std::string_view kHead = "POST /echo HTTP/1.1\r\nHost: h\r\n";

// The answer to `bytes`, behind which the server must end the connection.
TestResponse refused(uint16_t port, const std::string& bytes) {
  TestClient client(port);
  client.send(bytes);
  const TestResponse response = client.response();
  client.read_to_end();
  EXPECT_TRUE(client.ended());
  return response;
}

TEST(HttpLimits, AnswersWhatItRefusesAndCloses) {
  Config config = test_config();
  config.limits.max_header_bytes = 2000;
  config.limits.max_body_bytes = 1000;
  TestServer server({}, config);
  const std::string head(kHead);
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET /% HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {head + "Content-Length: 1001\r\n\r\n", 413},
      {head + "Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n", 413},
      {head + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", 413},
      {head + "X: " + std::string(3000, 'x') + "\r\n\r\n", 431},
      {head + std::string(3000, 'x'), 431},
      {head + "Expect: wonders\r\n\r\n", 417},
      {std::string("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 11), 400},
  };
  int64_t count = 0;
  for (const auto& [bytes, status] : cases) {
    const TestResponse response = refused(server.port(), bytes);
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(response.body.starts_with("{\"status\": " + std::to_string(status))) << bytes;
    EXPECT_EQ(server.stats().malformed_requests, ++count);
  }
  EXPECT_EQ(TestClient(server.port()).fetch("/echo").status, 200);
}

TEST(HttpLimits, RefusesABadRequestBehindAGoodOne) {
  TestServer server;
  TestClient client(server.port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.1\r\nHost: h\r\n\r\nnonsense\r\n\r\n"));
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(client.response().status, 400);
  client.read_to_end();
  EXPECT_TRUE(client.ended());
}

// The client sends on and on before it looks: the answer must not be lost to a reset.
TEST(HttpLimits, AnswersAClientThatStillSendsItsBody) {
  TestServer server({}, test_config());
  TestClient client(server.port());
  ASSERT_TRUE(client.send(std::string(kHead) + "Content-Length: 100000000\r\n\r\n"));
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 95; ++i) {
    if (!client.send(megabyte)) break;
  }
  EXPECT_EQ(client.response().status, 413);
}

TEST(HttpLimits, RefusesABadChunkBehindAContinue) {
  TestServer server;
  TestClient client(server.port());
  ASSERT_TRUE(client.send(std::string(kHead) +
                          "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(client.response().status, 100);
  ASSERT_TRUE(client.send("zz\r\n"));
  EXPECT_EQ(client.response().status, 400);
}

TEST(HttpLimits, BoundsAllBodiesTogether) {
  Config config = test_config();
  config.limits.max_receiving_bytes = 1000;
  TestServer server({}, config);
  TestClient kept(server.port());
  for (int i = 0; i < 5; ++i) {
    const std::string head = std::string(kHead) + "Content-Length: 2000\r\n\r\n";
    EXPECT_EQ(refused(server.port(), head + std::string(1500, 'x')).status, 503);
    // What was counted is counted no more.
    ASSERT_TRUE(kept.send(std::string(kHead) + "Content-Length: 900\r\n\r\n"));
    ASSERT_TRUE(kept.send(std::string(500, 'x')));
    ASSERT_TRUE(kept.send(std::string(400, 'x')));
    EXPECT_EQ(kept.response().status, 200);
  }
}

TEST(HttpLimits, CountsABodyUntilItIsAnswered) {
  Config config = test_config();
  config.limits.max_receiving_bytes = 1000;
  std::promise<ExchangePtr> promise;
  TestServer server(
      {{"/keep", [&promise](ExchangePtr exchange) { promise.set_value(std::move(exchange)); }}},
      config);
  TestClient kept(server.port());
  ASSERT_TRUE(kept.send("POST /keep HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n" +
                        std::string(900, 'x')));
  const ExchangePtr exchange = promise.get_future().get();
  const std::string half =
      std::string(kHead) + "Content-Length: 900\r\n\r\n" + std::string(500, 'x');
  EXPECT_EQ(refused(server.port(), half).status, 503);
  exchange->respond({});
  EXPECT_EQ(kept.response().status, 200);
  ASSERT_TRUE(kept.send(half));
  ASSERT_TRUE(kept.send(std::string(400, 'x')));
  EXPECT_EQ(kept.response().status, 200);
}

// Bodies that stop half way, as many as there are, take no more than the account has.
TEST(HttpLimits, ChargesBodiesWhileTheyComeIn) {
  const auto account = std::make_shared<MemoryAccount>(100'000);
  Config config = test_config();
  config.body_account = [account] { return account; };
  std::promise<std::unique_ptr<MemoryCharge>> handed_over;
  TestServer server({{"/take",
                      [&handed_over](const ExchangePtr& exchange) {
                        handed_over.set_value(exchange->take_charge());
                        exchange->respond({});
                      }}},
                    config);
  const std::string length = "Host: h\r\nContent-Length: 80000\r\n\r\n";
  const std::string half = length + std::string(60'000, 'x');
  auto first = std::make_unique<TestClient>(server.port());
  ASSERT_TRUE(first->send("POST /take HTTP/1.1\r\n" + half));
  ASSERT_TRUE(eventually([&] { return account->used() == 60'000; }));
  EXPECT_EQ(refused(server.port(), "POST /take HTTP/1.1\r\n" + half).status, 429);
  EXPECT_EQ(refused(server.port(),
                    "POST /take HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked"
                    "\r\n\r\nffff\r\n" +
                        std::string(60'000, 'x'))
                .status,
            429);
  ASSERT_TRUE(eventually([&] { return account->used() == 60'000; })) << "refused ones give it back";
  ASSERT_TRUE(first->send(std::string(20'000, 'x')));
  EXPECT_EQ(first->response().status, 200);
  std::unique_ptr<MemoryCharge> charge = handed_over.get_future().get();
  ASSERT_NE(charge, nullptr);
  EXPECT_EQ(charge->bytes(), 80'000) << "it outlives the request";
  charge.reset();
  EXPECT_TRUE(eventually([&] { return account->used() == 0; }));

  // Who breaks it off, and who is not asked for it.
  ASSERT_TRUE(first->send("POST /echo HTTP/1.1\r\n" + half));
  ASSERT_TRUE(eventually([&] { return account->used() == 60'000; }));
  first.reset();
  EXPECT_TRUE(eventually([&] { return account->used() == 0; }));
  EXPECT_EQ(TestClient(server.port()).fetch("/echo").status, 200);
  TestClient whole(server.port());
  ASSERT_TRUE(whole.send("POST /echo HTTP/1.1\r\n" + half + std::string(20'000, 'x')));
  EXPECT_EQ(whole.response().status, 200);
  EXPECT_TRUE(eventually([&] { return account->used() == 0; }));
}

// 127.0.0.1 sends as much as it may, and 127.0.0.2 is served.
TEST(HttpLimits, BodiesOfOneAddressLeaveOthersHalf) {
  const auto account = std::make_shared<MemoryAccount>(100'000);
  Config config = test_config();
  config.body_account = [account] { return account; };
  TestServer server({}, config);
  const std::string half =
      std::string(kHead) + "Content-Length: 39000\r\n\r\n" + std::string(30'000, 'x');
  TestClient first(server.port());
  ASSERT_TRUE(first.send(half));
  ASSERT_TRUE(eventually([&] { return account->used() == 30'000; }));
  EXPECT_EQ(refused(server.port(), half).status, 429) << "60,000 of 100,000";
  ASSERT_TRUE(eventually([&] { return account->used() == 30'000; }));
  TestClient other(server.port(), {.from = "127.0.0.2"});
  ASSERT_TRUE(other.send(half));
  ASSERT_TRUE(eventually([&] { return account->used() == 60'000; }));
  for (TestClient* client : {&first, &other}) {
    ASSERT_TRUE(client->send(std::string(9'000, 'x')));
    EXPECT_EQ(client->response().status, 200);
  }
  // One body may take more than half.
  TestClient alone(server.port());
  ASSERT_TRUE(
      alone.send(std::string(kHead) + "Content-Length: 80000\r\n\r\n" + std::string(80'000, 'x')));
  EXPECT_EQ(alone.response().status, 200);
}

TEST(HttpLimits, RefusesABodyThatTheAccountCouldNeverHave) {
  const auto account = std::make_shared<MemoryAccount>(50'000);
  Config config = test_config();
  config.body_account = [account] { return account; };
  TestServer server({}, config);
  EXPECT_EQ(refused(server.port(),
                    std::string(kHead) + "Content-Length: 80000\r\n\r\n" + std::string(60'000, 'x'))
                .status,
            413);
  EXPECT_TRUE(eventually([&] { return account->used() == 0; }));
}

TEST(HttpLimits, TimesOutSlowRequests) {
  Config config = test_config();
  config.limits.header_timeout = milliseconds(50);
  config.limits.body_timeout = milliseconds(50);
  TestServer server({}, config);
  EXPECT_EQ(refused(server.port(), "GET /ec").status, 408);
  EXPECT_EQ(refused(server.port(), std::string(kHead) + "Content-Length: 9\r\n\r\nhalf").status,
            408);
  EXPECT_EQ(server.stats().timed_out_connections, 2);
}

// A byte now and then is no progress: the time is for the whole head.
TEST(HttpLimits, TimesOutAClientThatTrickles) {
  Config config = test_config();
  config.limits.header_timeout = milliseconds(100);
  TestServer server({}, config);
  TestClient client(server.port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.1\r\n"));
  EXPECT_TRUE(eventually([&] {
    client.send("X: y\r\n");
    return server.stats().timed_out_connections == 1;
  }));
  EXPECT_EQ(client.response().status, 408);
}

TEST(HttpLimits, ClosesIdleConnectionsWithoutAWord) {
  Config config = test_config();
  config.limits.idle_timeout = milliseconds(1000);  // the second client has as long to ask
  TestServer server({}, config);
  TestClient fresh(server.port());
  EXPECT_EQ(fresh.read_to_end(), "");
  EXPECT_TRUE(fresh.ended());
  TestClient used(server.port());
  EXPECT_EQ(used.fetch("/echo").status, 200);
  EXPECT_EQ(used.read_to_end(), "");
  EXPECT_TRUE(used.ended());
  EXPECT_EQ(server.stats().timed_out_connections, 0);
}

TEST(HttpLimits, WaitsForAnAnswerWithoutATimeOut) {
  Config config = test_config();
  config.limits.idle_timeout = config.limits.header_timeout = config.limits.body_timeout =
      config.limits.write_timeout = milliseconds(1000);  // the client has as long to ask
  std::atomic<bool> closed{false};
  TestServer server({{"/slow",
                      [&](ExchangePtr exchange) {
                        exchange->on_closed([&] { closed = true; });
                        std::thread([exchange] {
                          std::this_thread::sleep_for(milliseconds(1500));
                          exchange->respond({});
                        }).detach();
                      }}},
                    config);
  TestClient client(server.port());
  EXPECT_EQ(client.fetch("/slow").status, 200);
  EXPECT_FALSE(closed);
}

TEST(HttpLimits, AnswersAllThatIsPipelinedHoweverMuchThatIs) {
  Config config = test_config();
  config.limits.max_pipelined_bytes = 1000;
  TestServer server({}, config);
  TestClient client(server.port());
  constexpr int kRequests = 5000;
  std::string requests;
  for (int i = 0; i < kRequests; ++i) {
    requests += "GET /echo?" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
  }
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_EQ(client.response().body, "GET /echo?" + std::to_string(i) + " ");
  }
}

TEST(HttpLimits, NoticesAClientThatLeavesBehindMoreThanItKeeps) {
  Config config = test_config();
  config.limits.max_pipelined_bytes = 1000;
  std::atomic<int> waiting{0};
  std::atomic<int> closed{0};
  TestServer server({{"/wait",
                      [&](ExchangePtr exchange) {
                        exchange->on_closed([&, exchange] { ++closed; });
                        ++waiting;
                      }}},
                    config);
  TestClient polite(server.port());
  TestClient rude(server.port());
  for (TestClient* client : {&polite, &rude}) {
    ASSERT_TRUE(client->get("/wait"));
    ASSERT_TRUE(client->send(std::string(20'000, 'x')));
  }
  ASSERT_TRUE(eventually([&] { return waiting == 2; }));
  polite.end_output();
  rude.reset();
  EXPECT_TRUE(eventually([&] { return closed == 2; }));
}

TEST(HttpLimits, ReadsNoBodyThatNobodyWants) {
  Config config = test_config();
  config.wants_body = [](const Request& head) { return head.header("X-Key") == "right"; };
  TestServer server({}, config);
  const std::string length = "Content-Length: 10000000\r\n\r\n";
  const TestResponse refused_early = refused(server.port(), std::string(kHead) + length);
  EXPECT_EQ(refused_early.body, "POST /echo? ");  // the handler's answer, to no body
  EXPECT_EQ(refused_early.headers.at("connection"), "close");
  EXPECT_EQ(refused(server.port(), std::string(kHead) + "Expect: 100-continue\r\n" + length).status,
            200);
  EXPECT_EQ(refused(server.port(), std::string(kHead) + length + std::string(500'000, 'x')).body,
            "POST /echo? ");
  // Neither does its sender learn what is wrong with it.
  const std::string chunked = std::string(kHead) + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& broken : {std::string(kHead) + "Content-Length: 100000000000\r\n\r\n",
                                    chunked + "zz\r\n", chunked + "fffffffffff\r\n"}) {
    EXPECT_EQ(refused(server.port(), broken).body, "POST /echo? ") << broken;
  }
  EXPECT_EQ(refused(server.port(),
                    std::string(kHead) + "X-Key: right\r\nContent-Length: 100000000000\r\n\r\n")
                .status,
            413);
  TestClient welcome(server.port());
  ASSERT_TRUE(welcome.send(std::string(kHead) + "X-Key: right\r\nContent-Length: 9000\r\n\r\n"));
  ASSERT_TRUE(welcome.send(std::string(9000, 'b')));
  EXPECT_EQ(welcome.response().body, "POST /echo? " + std::string(9000, 'b'));
}

TEST(HttpLimits, RejectsConnectionsBeyondTheirNumber) {
  Config config = test_config();
  config.limits.max_connections = 2;
  TestServer server({}, config);
  auto first = std::make_unique<TestClient>(server.port());
  TestClient second(server.port());
  EXPECT_EQ(first->fetch("/echo").status, 200);
  EXPECT_EQ(second.fetch("/echo").status, 200);
  {
    TestClient third(server.port());
    third.get("/echo");
    EXPECT_EQ(third.response().status, 503);
    third.read_to_end();
    EXPECT_TRUE(third.ended());
  }
  EXPECT_EQ(server.stats().rejected_connections, 1);
  EXPECT_EQ(second.fetch("/echo").status, 200);
  first.reset();
  EXPECT_TRUE(eventually([&] { return TestClient(server.port()).fetch("/echo").status == 200; }));
}

TEST(HttpLimits, SurvivesAFloodOfConnections) {
  Config config = test_config();
  config.limits.max_connections = 50;
  TestServer server({}, config);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<TestClient>> scan;
    for (int i = 0; i < 200; ++i) scan.push_back(std::make_unique<TestClient>(server.port()));
  }
  EXPECT_TRUE(eventually([&] { return TestClient(server.port()).fetch("/echo").status == 200; }));
}

// The server must neither spin nor die where accept() has no descriptor to give.
TEST(HttpLimits, SurvivesRunningOutOfDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  // UBSAN looks whether memory can be read by writing it to a pipe, and takes its failing for a bad
  // pointer.
  GTEST_SKIP() << "the sanitizer needs file descriptors itself";
#endif
  TestServer server({}, test_config());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  TestClient early(server.port());
  ASSERT_EQ(early.fetch("/echo").status, 200);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> hoard;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) hoard.push_back(fd);
  ASSERT_FALSE(hoard.empty());
  close(hoard.back());
  hoard.pop_back();
  TestClient late(server.port());  // takes the last one; the server has none for its side
  ASSERT_TRUE(late.get("/echo"));
  EXPECT_EQ(early.fetch("/echo").status, 200);
  for (const int fd : hoard) close(fd);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(late.response().status, 200);
}

}  // namespace
}  // namespace quire::http
