#include "http/request_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::http {
namespace {

using Stage = RequestParser::Stage;

struct Parsed {
  Stage stage = Stage::kNothing;
  ParseFailure failure{};
  Request request{};
  std::string rest{};
};

// Feeds the bytes in pieces of `step`, keeping what is unused, as a connection does.
Parsed parse(const std::string& bytes, const Limits& limits = {}, std::size_t step = 1 << 20) {
  RequestParser parser(limits);
  std::string kept;
  std::size_t given = 0;
  while (given < bytes.size() && parser.stage() != Stage::kComplete &&
         parser.stage() != Stage::kFailed) {
    kept += bytes.substr(given, step);
    given = std::min(bytes.size(), given + step);
    kept.erase(0, parser.feed(kept));
  }
  Parsed parsed{.stage = parser.stage(), .failure = parser.failure()};
  if (given < bytes.size()) kept += bytes.substr(given);
  if (parsed.stage == Stage::kComplete) parsed.request = parser.take();
  parsed.rest = kept;
  return parsed;
}

int status_of(const std::string& bytes, const Limits& limits = {}) {
  const Parsed whole = parse(bytes, limits);
  const Parsed single = parse(bytes, limits, 1);
  EXPECT_EQ(whole.stage, single.stage) << bytes;
  EXPECT_EQ(whole.failure.status, single.failure.status) << bytes;
  return whole.stage == Stage::kFailed ? whole.failure.status : 0;
}

std::string request_with(const std::string& headers, const std::string& body = "") {
  return "POST /x HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

TEST(RequestParser, ReadsARequestHoweverItIsCut) {
  const std::string bytes =
      "POST /a%20b/%C3%A9?x=%31&y HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nx-one:  two words \r\n"
      "Content-Length: 5\r\n\r\nhelloNEXT";
  for (const std::size_t step : {1U, 2U, 3U, 7U, 1000U}) {
    const Parsed parsed = parse(bytes, {}, step);
    ASSERT_EQ(parsed.stage, Stage::kComplete) << parsed.failure.message;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/a b/\xC3\xA9");
    EXPECT_EQ(parsed.request.query, "x=%31&y");
    EXPECT_EQ(parsed.request.header("X-ONE"), "1");
    EXPECT_EQ(parsed.request.headers.at(2).second, "two words");
    EXPECT_EQ(parsed.request.header("absent"), std::nullopt);
    EXPECT_EQ(parsed.request.body, "hello");
    EXPECT_EQ(parsed.rest, "NEXT");
  }
}

TEST(RequestParser, ReadsChunksAndDropsTrailers) {
  const std::string bytes = request_with("Transfer-Encoding: chunked\r\n",
                                         "5;ext=1\r\nhello\r\nA\r\n, world!!!\r\n0\r\n"
                                         "X-Trailer: t\r\n\r\nNEXT");
  for (const std::size_t step : {1U, 2U, 3U, 7U, 1000U}) {
    const Parsed parsed = parse(bytes, {}, step);
    ASSERT_EQ(parsed.stage, Stage::kComplete) << parsed.failure.message;
    EXPECT_EQ(parsed.request.body, "hello, world!!!");
    EXPECT_EQ(parsed.request.header("X-Trailer"), std::nullopt);
    EXPECT_EQ(parsed.rest, "NEXT");
  }
}

TEST(RequestParser, TakesTheFormsOfATarget) {
  const auto path = [](const std::string& target) {
    const Parsed parsed = parse("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return parsed.stage == Stage::kComplete ? parsed.request.path + "|" + parsed.request.query
                                            : "failed";
  };
  EXPECT_EQ(path("/"), "/|");
  EXPECT_EQ(path("/?"), "/|");
  EXPECT_EQ(path("/a?b?c"), "/a|b?c");
  EXPECT_EQ(path("*"), "*|");
  EXPECT_EQ(path("http://host:80/a?b"), "/a|b");
  EXPECT_EQ(path("HTTP://host"), "/|");
  EXPECT_EQ(path("https://host?q"), "/|q");
  EXPECT_EQ(path("ftp://host/"), "failed");
  EXPECT_EQ(path("a/b"), "failed");
}

TEST(RequestParser, SaysForWhomAnAbsoluteTargetIs) {
  const auto authority = [](const std::string& target) {
    const Parsed parsed = parse("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return parsed.stage == Stage::kComplete ? parsed.request.authority : "failed";
  };
  EXPECT_EQ(authority("/a"), "");
  EXPECT_EQ(authority("*"), "");
  EXPECT_EQ(authority("http://evil.example/a"), "evil.example");
  EXPECT_EQ(authority("HTTPS://[::1]:80?q"), "[::1]:80");
  EXPECT_EQ(authority("http://localhost"), "localhost");
  EXPECT_EQ(authority("http:///a"), "failed");
  EXPECT_EQ(authority("http://?q"), "failed");
  EXPECT_EQ(authority("http://localhost:80@evil.example/"), "failed");
}

TEST(RequestParser, RefusesAPathThatCannotBeDecoded) {
  for (const std::string path : {"/%", "/%1", "/%zz", "/%0", "/%00", "/a%2"}) {
    EXPECT_EQ(status_of("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"), 400) << path;
  }
}

TEST(RequestParser, SaysWhetherTheConnectionGoesOn) {
  const auto keeps = [](const std::string& bytes) {
    RequestParser parser{Limits()};
    parser.feed(bytes);
    return parser.keep_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST(RequestParser, RefusesWhatTwoReadersWouldSeeDifferently) {
  const std::vector<std::string> headers = {
      "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
      "Content-Length: 1\r\nContent-Length: 2\r\n",
      "Content-Length: 1\r\nContent-Length: 1\r\n",
      "Content-Length: 1, 1\r\n",
      "Content-Length: +1\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: 0x1\r\n",
      "Content-Length: 1 1\r\n",
      "Content-Length:\r\n",
      "Content-Length: 99999999999999999999\r\n",
      "Transfer-Encoding: gzip\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: chunked, chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
      "Transfer-Encoding: \x0b"
      "chunked\r\n",
      "Transfer-Encoding : chunked\r\n",
      "Host: other\r\n",
  };
  for (const std::string& header : headers) {
    EXPECT_EQ(status_of(request_with(header, "1\r\na\r\n0\r\n\r\n")), 400) << header;
  }
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(RequestParser, RefusesMalformedHeads) {
  const std::vector<std::string> requests = {
      "GET / HTTP/1.1\r\n\r\n",  // no Host
      "GET /\r\n\r\n",
      "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
      "GET / HTTP/1.1\nHost: h\n\n",
      "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
      " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
      "G\x01T / HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\n: empty\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nHost: h\r\nX: a") + '\0' + "b\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "{\"json\": \"to the wrong port\"}\r\n\r\n",
  };
  // Only what looks like the end of a head makes the reader look at it again.
  for (const std::string& request : requests) {
    EXPECT_EQ(status_of(request + "\r\n\r\n"), 400) << request;
  }
}

TEST(RequestParser, NamesATlsHandshake) {
  const Parsed parsed = parse(std::string("\x16\x03\x01\x02\x00\x01", 6));
  EXPECT_EQ(parsed.failure.status, 400);
  EXPECT_NE(parsed.failure.message.find("TLS"), std::string::npos);
}

TEST(RequestParser, RefusesMalformedChunks) {
  for (const std::string body :
       {"x\r\n", "\r\n", "-1\r\n", "g\r\na\r\n", "5\r\nhello!\r\n0\r\n\r\n", "1\r\nab\r\n",
        "1;\x01\r\na\r\n0\r\n\r\n", "1 1\r\na\r\n", "0x1\r\na\r\n"}) {
    const int status = status_of(request_with("Transfer-Encoding: chunked\r\n", body + "\r\n\r\n"));
    EXPECT_EQ(status, 400) << body;
  }
}

TEST(RequestParser, BoundsChunkLinesAndTrailers) {
  const std::string head = request_with("Transfer-Encoding: chunked\r\n");
  EXPECT_EQ(status_of(head + "1;" + std::string(10'000, 'x')), 400);
  EXPECT_EQ(status_of(head + std::string(10'000, '0')), 400);
  EXPECT_EQ(status_of(head + "0\r\nX: " + std::string(10'000, 'x')), 400);
}

TEST(RequestParser, BoundsTheHead) {
  Limits limits;
  limits.max_header_bytes = 1000;
  const auto with = [](std::size_t size) {
    return "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(size, 'x') + "\r\n\r\n";
  };
  EXPECT_EQ(status_of(with(900), limits), 0);
  EXPECT_EQ(status_of(with(1000), limits), 431);
  EXPECT_EQ(status_of("GET /" + std::string(2000, 'a'), limits), 431);
  EXPECT_EQ(status_of(std::string(2000, 'G'), limits), 431);
  std::string flood = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 100; ++i) flood += "X-Header: value\r\n";
  EXPECT_EQ(status_of(flood, limits), 431);
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "\r\n";
  EXPECT_EQ(status_of(lines, limits), 431);
}

TEST(RequestParser, BoundsTheBody) {
  Limits limits;
  limits.max_body_bytes = 10;
  EXPECT_EQ(status_of(request_with("Content-Length: 10\r\n", "0123456789"), limits), 0);
  EXPECT_EQ(status_of(request_with("Content-Length: 11\r\n"), limits), 413);
  EXPECT_EQ(status_of(request_with("Content-Length: 18446744073709551615\r\n"), limits), 413);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status_of(request_with(chunked, "a\r\n0123456789\r\n0\r\n\r\n"), limits), 0);
  EXPECT_EQ(status_of(request_with(chunked, "b\r\n"), limits), 413);
  EXPECT_EQ(status_of(request_with(chunked, "6\r\nabcdef\r\n6\r\n"), limits), 413);
  EXPECT_EQ(status_of(request_with(chunked, "ffffffffffffffff\r\n"), limits), 413);
  EXPECT_EQ(status_of(request_with(chunked, "10000000000000001\r\n"), limits), 413);
}

TEST(RequestParser, SkipsBlankLinesInFront) {
  for (const std::size_t step : {1U, 3U, 100U}) {
    const Parsed parsed = parse("\r\n\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n", {}, step);
    EXPECT_EQ(parsed.stage, Stage::kComplete);
    EXPECT_EQ(parsed.request.path, "/x");
  }
}

TEST(RequestParser, KnowsOneExpectation) {
  RequestParser parser{Limits()};
  parser.feed(request_with("Expect: 100-Continue\r\nContent-Length: 2\r\n"));
  EXPECT_EQ(parser.stage(), Stage::kBody);
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(status_of(request_with("Expect: a miracle\r\n")), 417);
}

}  // namespace
}  // namespace quire::http
