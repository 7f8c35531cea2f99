// What a well-behaved client gets.
#include "http/server.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "http/test_client.h"
#include "quire/error.h"

namespace quire::http {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

Response text(std::string body) {
  Response response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

// Hands each exchange of a path to the test's own thread.
class Mailbox {
 public:
  TestServer::Route route() {
    return [this](ExchangePtr exchange) {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(exchange));
      arrived_.notify_all();
    };
  }
  ExchangePtr take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(30), [&] { return !waiting_.empty(); })) {
      return nullptr;
    }
    ExchangePtr exchange = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    return exchange;
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<ExchangePtr> waiting_;
};

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  TestServer server;
  TestClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.post("/echo?n=" + std::to_string(i), "body"));
    const TestResponse response = client.response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("content-type"), "text/plain");
    EXPECT_FALSE(response.headers.contains("connection"));
    EXPECT_EQ(response.body, "POST /echo?n=" + std::to_string(i) + " body");
  }
  EXPECT_EQ(client.fetch("/absent").status, 404);
  EXPECT_EQ(server.stats().accepted_connections, 1);
}

TEST(HttpServer, TellsTheHandlerWhoAsks) {
  std::promise<Request> seen;
  TestServer server({{"/who", [&](ExchangePtr exchange) {
                        seen.set_value(exchange->request());
                        exchange->respond(text(""));
                      }}});
  TestClient client(server.port());
  EXPECT_EQ(client.fetch("/who").status, 200);
  const Request request = seen.get_future().get();
  EXPECT_EQ(request.remote, "127.0.0.1");
  EXPECT_FALSE(request.tls);
  EXPECT_EQ(request.header("host"), "test");
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  TestClient client(server.port());
  std::string requests;
  for (int i = 0; i < 500; ++i) {
    requests += "GET /echo?" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
  }
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(client.response().body, "GET /echo?" + std::to_string(i) + " ");
  }
}

TEST(HttpServer, TakesOnePipelinedRequestAtATime) {
  Mailbox mailbox;
  TestServer server({{"/wait", mailbox.route()}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/wait") && client.get("/wait"));
  const ExchangePtr first = mailbox.take();
  ASSERT_TRUE(first);
  EXPECT_EQ(mailbox.size(), 0U);
  EXPECT_EQ(server.server().num_active(), 1);
  first->respond(text("one"));
  EXPECT_EQ(client.response().body, "one");
  const ExchangePtr second = mailbox.take();
  ASSERT_TRUE(second);
  second->respond(text("two"));
  EXPECT_EQ(client.response().body, "two");
  EXPECT_TRUE(eventually([&] { return server.server().num_active() == 0; }));
}

TEST(HttpServer, ReadsChunkedBodiesAndContinues) {
  TestServer server;
  TestClient client(server.port());
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(client.response().status, 100);
  ASSERT_TRUE(client.send("3\r\nabc\r\n"));
  ASSERT_TRUE(client.send("2\r\nde\r\n0\r\n\r\n"));
  EXPECT_EQ(client.response().body, "POST /echo? abcde");
  EXPECT_EQ(client.fetch("/echo").body, "GET /echo? ");
}

TEST(HttpServer, TakesALargeBody) {
  TestServer server({{"/size", [](ExchangePtr exchange) {
                        const std::string body = exchange->take_body();
                        exchange->respond(text(std::to_string(body.size())));
                      }}});
  TestClient client(server.port());
  ASSERT_TRUE(client.post("/size", std::string(30 << 20, 'x')));
  EXPECT_EQ(client.response().body, std::to_string(30 << 20));
}

TEST(HttpServer, StreamsFromAnotherThread) {
  Mailbox mailbox;
  TestServer server({{"/stream", mailbox.route()}});
  TestClient client(server.port());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(client.get("/stream"));
    const ExchangePtr exchange = mailbox.take();
    ASSERT_TRUE(exchange);
    Response head;
    head.content_type = "text/event-stream";
    head.headers = {{"X-Request-Id", "7"}};
    exchange->begin_stream(std::move(head));
    std::string expected;
    for (int i = 0; i < 1000; ++i) {
      const std::string piece = "data: " + std::to_string(i) + "\n\n";
      expected += piece;
      exchange->write(piece);
    }
    exchange->write("");  // would end a chunked body
    exchange->finish();
    const TestResponse response = client.response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
    EXPECT_EQ(response.headers.at("x-request-id"), "7");
    EXPECT_TRUE(response.whole);
    EXPECT_EQ(response.body, expected);
    EXPECT_FALSE(exchange->closed());
  }
}

TEST(HttpServer, SendsAPieceBeforeTheNextIsThere) {
  Mailbox mailbox;
  TestServer server({{"/stream", mailbox.route()}});
  TestClient client(server.port());
  ASSERT_TRUE(client.get("/stream"));
  const ExchangePtr exchange = mailbox.take();
  ASSERT_TRUE(exchange);
  exchange->begin_stream({});
  EXPECT_TRUE(client.read_past("\r\n\r\n"));
  for (const std::string piece : {"first", "second", "third"}) {
    exchange->write(piece);
    EXPECT_TRUE(client.read_past(piece + "\r\n"));
  }
  exchange->finish();
  EXPECT_TRUE(client.read_past("0\r\n\r\n"));
}

TEST(HttpServer, WritesFromItsOwnThreadInABatch) {
  constexpr int kStreams = 20;
  Mailbox mailbox;
  TestServer server({{"/stream", mailbox.route()}});
  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<ExchangePtr> exchanges;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    ASSERT_TRUE(clients.back()->get("/stream"));
    exchanges.push_back(mailbox.take());
    ASSERT_TRUE(exchanges.back());
  }
  server.server().post([&] {
    for (const ExchangePtr& exchange : exchanges) exchange->begin_stream({});
  });
  for (int piece = 0; piece < 10; ++piece) {
    server.server().post([&, piece] {
      for (const ExchangePtr& exchange : exchanges) exchange->write(std::to_string(piece));
    });
  }
  server.server().post([&] {
    for (const ExchangePtr& exchange : exchanges) exchange->finish();
  });
  for (const auto& client : clients) EXPECT_EQ(client->response().body, "0123456789");
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  TestServer server({{"/stream",
                      [](ExchangePtr exchange) {
                        exchange->begin_stream({});
                        exchange->write("unseen");
                        exchange->finish();
                      }},
                     {"/empty", [](ExchangePtr exchange) {
                        Response response = text("unseen");
                        response.status = 204;
                        exchange->respond(std::move(response));
                      }}});
  TestClient client(server.port());
  ASSERT_TRUE(client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.response(true).headers.at("content-length"), "12");
  ASSERT_TRUE(client.send("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.response(true).headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client.fetch("/empty").status, 204);
  EXPECT_EQ(client.fetch("/echo").body, "GET /echo? ");
}

TEST(HttpServer, ServesHttp10) {
  TestServer server({{"/stream", [](ExchangePtr exchange) {
                        exchange->begin_stream({});
                        exchange->write("one ");
                        exchange->write("two");
                        exchange->finish();
                      }}});
  TestClient keeping(server.port());
  ASSERT_TRUE(keeping.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_EQ(keeping.response().headers.at("connection"), "keep-alive");
  ASSERT_TRUE(keeping.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  const TestResponse stream = keeping.response();
  EXPECT_EQ(stream.headers.at("connection"), "close");
  EXPECT_FALSE(stream.headers.contains("transfer-encoding"));
  EXPECT_EQ(stream.body, "one two");
  EXPECT_TRUE(stream.whole);
  TestClient single(server.port());
  ASSERT_TRUE(single.send("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(single.response().headers.at("connection"), "close");
  EXPECT_EQ(single.read_to_end(), "");
  EXPECT_TRUE(single.ended());
}

TEST(HttpServer, ClosesWhereTheClientAsks) {
  TestServer server;
  TestClient client(server.port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.response().headers.at("connection"), "close");
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, FailsOneRequestWhoseHandlerFails) {
  TestServer server({{"/throw", [](ExchangePtr) { throw std::runtime_error("no"); }},
                     {"/forget", [](ExchangePtr) {}},
                     {"/half",
                      [](ExchangePtr exchange) {
                        exchange->begin_stream({});
                        exchange->write("half");
                      }}},
                    test_config());
  TestClient client(server.port());
  EXPECT_EQ(client.fetch("/throw").status, 500);
  const TestResponse forgotten = client.fetch("/forget");
  EXPECT_EQ(forgotten.status, 500);
  EXPECT_TRUE(forgotten.body.starts_with("{\"status\": 500")) << forgotten.body;
  EXPECT_EQ(client.fetch("/echo").status, 200);
  ASSERT_TRUE(client.get("/half"));
  EXPECT_FALSE(client.response().whole);  // no end of the chunks: the client can tell
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(eventually([&] { return server.server().num_active() == 0; }));
}

TEST(HttpServer, SpreadsConnectionsOverThreads) {
  Config config;
  config.threads = 3;
  Mailbox mailbox;
  std::mutex mutex;
  std::map<std::thread::id, int> seen;
  TestServer server({{"/thread",
                      [&](ExchangePtr exchange) {
                        const std::lock_guard lock(mutex);
                        ++seen[std::this_thread::get_id()];
                        exchange->respond(text("ok"));
                      }},
                     {"/stream", mailbox.route()}},
                    config);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 9; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    EXPECT_EQ(clients.back()->fetch("/thread").body, "ok");
  }
  EXPECT_EQ(seen.size(), 3U);
  std::vector<ExchangePtr> exchanges;
  for (const auto& client : clients) {
    ASSERT_TRUE(client->get("/stream"));
    exchanges.push_back(mailbox.take());
    ASSERT_TRUE(exchanges.back());
  }
  for (const ExchangePtr& exchange : exchanges) {
    exchange->begin_stream({});
    exchange->write("piece");
    exchange->finish();
  }
  for (const auto& client : clients) EXPECT_EQ(client->response().body, "piece");
}

TEST(HttpServer, StopsAcceptingAndLetsAnswersEnd) {
  Mailbox mailbox;
  TestServer server({{"/wait", mailbox.route()}, {"/stream", mailbox.route()}});
  TestClient waiting(server.port());
  TestClient streaming(server.port());
  TestClient idle(server.port());
  ASSERT_EQ(idle.fetch("/echo").status, 200);
  ASSERT_TRUE(waiting.get("/wait"));
  const ExchangePtr exchange = mailbox.take();
  ASSERT_TRUE(streaming.get("/stream"));
  const ExchangePtr stream = mailbox.take();
  ASSERT_TRUE(exchange && stream);
  stream->begin_stream({});
  stream->write("one ");

  server.server().stop_accepting();
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(eventually([&] { return TestClient(server.port()).ended(); }));
  EXPECT_EQ(server.server().num_active(), 2);

  exchange->respond(text("done"));
  const TestResponse response = waiting.response();
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(response.headers.at("connection"), "close");
  waiting.read_to_end();
  EXPECT_TRUE(waiting.ended());
  stream->write("two");
  stream->finish();
  EXPECT_EQ(streaming.response().body, "one two");
  streaming.read_to_end();
  EXPECT_TRUE(streaming.ended());
  EXPECT_TRUE(eventually([&] { return server.server().num_active() == 0; }));
}

TEST(HttpServer, ExchangesOutliveIt) {
  Mailbox mailbox;
  TestServer server({{"/wait", mailbox.route()}, {"/stream", mailbox.route()}});
  TestClient waiting(server.port());
  TestClient streaming(server.port());
  ASSERT_TRUE(waiting.get("/wait"));
  const ExchangePtr exchange = mailbox.take();
  ASSERT_TRUE(streaming.get("/stream"));
  ExchangePtr stream = mailbox.take();
  ASSERT_TRUE(exchange && stream);
  stream->begin_stream({});
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  server.destroy();
  EXPECT_EQ(closed.load(), 1);
  EXPECT_TRUE(exchange->closed());
  EXPECT_TRUE(stream->closed());
  exchange->respond(text("nobody"));
  stream->write("nobody");
  stream->on_closed([] {});
  stream.reset();
  streaming.read_to_end();
  EXPECT_TRUE(streaming.ended());
}

TEST(HttpServer, ListensOnNamesAndAddresses) {
  Config config;
  config.host = "localhost";
  TestServer named({}, config);
  EXPECT_EQ(TestClient(named.port()).fetch("/echo").status, 200);
  config.host = "::1";
  try {
    TestServer six({}, config);
    TestClient client(six.port(), {.address = "::1"});
    EXPECT_EQ(client.fetch("/echo").status, 200);
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
}

TEST(HttpServer, SaysWhatItCannotListenOn) {
  TestServer first;
  const auto message = [](const Config& config) {
    try {
      Server server(config, [](ExchangePtr) {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Config config;
  config.port = first.port();
  EXPECT_NE(message(config).find("in use"), std::string::npos) << message(config);
  EXPECT_NE(message(config).find(std::to_string(first.port())), std::string::npos);
  config = {};
  config.host = "no.such.host.invalid";
  EXPECT_NE(message(config).find("no.such.host.invalid"), std::string::npos);
  config.host = "";
  EXPECT_FALSE(message(config).empty());
}

TEST(HttpServer, NeedNotBeStarted) {
  Config config;
  config.port = 0;
  Server server(config, [](ExchangePtr) {});
  EXPECT_NE(server.port(), 0);
}

}  // namespace
}  // namespace quire::http
