#include "server/api/api_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/api/api_test_util.h"
#include "server/api/json_body.h"

namespace quire::server {
namespace {

TEST(ApiError, BodyIsOpenAis) {
  EXPECT_EQ(
      error_body(invalid_request("n is 0.", "n", "invalid_value")),
      R"({"error":{"message":"n is 0.","type":"invalid_request_error","param":"n","code":"invalid_value"}})");
  EXPECT_EQ(
      error_body(server_error("No.")),
      R"({"error":{"message":"No.","type":"server_error","param":null,"code":"internal_error"}})");
  EXPECT_TRUE(nlohmann::json::accept(error_body(not_found("no \xff here"))));
}

TEST(ApiError, CarriesWhenToRetry) {
  EXPECT_EQ(rate_limited("Full.", 3).retry_after_s, 3);
  EXPECT_EQ(rate_limited("Full.", 3).status, 429);
  EXPECT_EQ(service_unavailable("Stopping.").retry_after_s, std::nullopt);
}

TEST(JsonBody, NamesTheByteWhereItIsWrong) {
  const std::string wrong = refusal([] { parse_body(R"({"a": 1,})"); });
  EXPECT_TRUE(wrong.starts_with("400 -: The request body: not valid JSON: ")) << wrong;
  EXPECT_NE(wrong.find("(byte 8)"), std::string::npos) << wrong;
  EXPECT_EQ(refusal([] { parse_object_body("[1]"); }),
            "400 -: The request body is a JSON array; a JSON object was expected.");
}

TEST(JsonBody, TakesTheLastOfRepeatedKeys) {
  EXPECT_EQ(parse_body(R"({"n": 1, "n": 2})").dump(), R"({"n":2})");
}

TEST(JsonBody, RefusesWhatNoRequestNeeds) {
  EXPECT_NE(refusal([] { parse_body(std::string(100, '[') + std::string(100, ']')); }), "");
  EXPECT_NE(refusal([] { parse_body(R"({"a": "\ud800"})"); }), "");
  EXPECT_NE(refusal([] { parse_body(R"({"a": 1e999})"); }), "");
  EXPECT_NE(refusal([] { parse_body("{\"a\": \"\xc3\x28\"}"); }), "");
  std::string many = "[0";
  for (size_t i = 0; i < kMaxBodyValues; ++i) many += ",0";
  EXPECT_EQ(refusal([&] { parse_body(many + "]"); }),
            "400 -: The request body: the JSON holds more than 1048576 values.");
}

}  // namespace
}  // namespace quire::server
