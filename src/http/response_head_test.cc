#include "http/response_head.h"

#include <gtest/gtest.h>

namespace quire::http {
namespace {

TEST(ResponseHead, SaysHowTheBodyEnds) {
  Response response;
  response.body = "12345";
  const std::string whole = response_head(response, {}, Framing::kLength);
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << whole;
  EXPECT_NE(whole.find("\r\nContent-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(whole.ends_with("\r\n\r\n"));
  const std::string chunked = response_head(response, {}, Framing::kChunked);
  EXPECT_NE(chunked.find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(chunked.find("Content-Length"), std::string::npos);
  const std::string none = response_head(response, {}, Framing::kNone);
  EXPECT_EQ(none.find("Content-"), std::string::npos);
}

TEST(ResponseHead, LetsNoHeaderSplitTheAnswer) {
  Response response;
  response.headers = {{"X-Echo", "a\r\nSet-Cookie: b\r\n\r\nbody"}};
  response.content_type = "text/plain\r\nX: y";
  const std::string head = response_head(response, {}, Framing::kLength);
  EXPECT_NE(head.find("\r\nX-Echo: a  Set-Cookie: b    body\r\n"), std::string::npos) << head;
  EXPECT_EQ(head.find("\r\n\r\n"), head.size() - 4);
}

TEST(ResponseHead, NamesEveryStatus) {
  EXPECT_EQ(reason_phrase(429), "Too Many Requests");
  EXPECT_EQ(reason_phrase(299), "Unknown");
  EXPECT_TRUE(status_has_body(200));
  EXPECT_FALSE(status_has_body(204));
  EXPECT_FALSE(status_has_body(304));
}

}  // namespace
}  // namespace quire::http
