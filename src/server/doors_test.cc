#include "server/doors.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api/api_error.h"

namespace quire::server {
namespace {

http::Request post_with(http::Headers headers) {
  http::Request request;
  request.method = "POST";
  request.headers = std::move(headers);
  return request;
}

template <class Check>
std::pair<int, std::string> outcome_of(Check check) {
  try {
    check();
  } catch (const ApiError& error) {
    return {error.status, error.what()};
  }
  return {200, ""};
}

int host_status(const Doors& doors, const std::string& host) {
  return outcome_of([&] { doors.check_host(post_with({{"Host", host}})); }).first;
}

TEST(Doors, KnowsLoopback) {
  for (const char* host :
       {"localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host :
       {"", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "localhost.evil.example",
        "127.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(Doors, TakeOnlyNamesOfTheirOwnMachine) {
  const Cors cors({});
  const Doors doors({.trusts_its_machine = true, .allowed_hosts = {"Chat.example:80"}}, cors);
  for (const char* host : {"localhost", "localhost:8000", "LocalHost.:8000", "127.0.0.1:1", "[::1]",
                           "[::1]:8000", "chat.example", "CHAT.example:8000"}) {
    EXPECT_EQ(host_status(doors, host), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example", "", "[",
                           "0.0.0.0:8000", "192.168.0.1"}) {
    EXPECT_EQ(host_status(doors, host), 403) << host;
  }
  EXPECT_EQ(outcome_of([&] { doors.check_host(post_with({})); }).first, 200);  // HTTP/1.0
  const std::string message = outcome_of([&] {
                                doors.check_host(post_with({{"Host", "evil.example"}}));
                              }).second;
  EXPECT_NE(message.find("--allowed-hosts"), std::string::npos) << message;
}

TEST(Doors, LookAtAnAbsoluteTargetToo) {
  const Cors cors({});
  const Doors doors({.trusts_its_machine = true, .allowed_hosts = {}}, cors);
  const auto status = [&](const std::string& authority, http::Headers headers) {
    http::Request request = post_with(std::move(headers));
    request.authority = authority;
    return outcome_of([&] { doors.check_host(request); }).first;
  };
  EXPECT_EQ(status("localhost:8000", {{"Host", "localhost"}}), 200);
  EXPECT_EQ(status("evil.example", {{"Host", "localhost"}}), 403);
  EXPECT_EQ(status("localhost", {{"Host", "evil.example"}}), 403);
  EXPECT_EQ(status("evil.example", {}), 403);
}

TEST(Doors, TakeAnyNameWhereTheyDoNotTrustTheirMachine) {
  const Cors cors({});
  EXPECT_EQ(host_status(Doors({}, cors), "evil.example"), 200);
  const Doors named({.allowed_hosts = {"chat.example"}}, cors);
  EXPECT_EQ(host_status(named, "chat.example"), 200);
  EXPECT_EQ(host_status(named, "evil.example"), 403);
}

TEST(Doors, TakeOnlyTheirOwnOrigin) {
  const auto status = [](const std::vector<std::string>& allowed, const std::string& origin) {
    const Cors cors(allowed);
    const Doors doors({.trusts_its_machine = true}, cors);
    return outcome_of([&] {
             doors.check_computing(post_with({{"Host", "localhost:8000"},
                                              {"Origin", origin},
                                              {"Content-Type", "application/json"}}));
           })
        .first;
  };
  EXPECT_EQ(status({}, "http://localhost:8000"), 200);
  EXPECT_EQ(status({}, "https://localhost:8000"), 200);  // behind a proxy that ends TLS
  for (const char* foreign : {"http://evil.example", "http://evil.example:8000", "null", "",
                              "http://localhost:3000", "http://localhost"}) {
    EXPECT_EQ(status({}, foreign), 403) << foreign;
    EXPECT_EQ(status({"*"}, foreign), 200) << foreign;
    EXPECT_EQ(status({foreign}, foreign), 200) << foreign;
  }
  EXPECT_EQ(status({"http://other.example"}, "http://evil.example"), 403);
}

TEST(Doors, TakeOnlyBodiesDeclaredAsJson) {
  const Cors cors({});
  const Doors doors({.trusts_its_machine = true}, cors);
  const Doors open({}, cors);
  const auto status = [](const Doors& checked, const http::Headers& headers) {
    return outcome_of([&] { checked.check_computing(post_with(headers)); });
  };
  EXPECT_EQ(status(doors, {{"Content-Type", "application/json"}}).first, 200);
  EXPECT_EQ(status(doors, {{"content-type", "Application/JSON ; charset=utf-8"}}).first, 200);
  const std::string types[] = {"text/plain", "application/x-www-form-urlencoded", "",
                               "application/jsonp", "multipart/form-data; boundary=x"};
  for (const std::string& type : types) {
    const auto [code, message] = status(doors, {{"Content-Type", type}});
    EXPECT_EQ(code, 415) << type;
    EXPECT_NE(message.find("Content-Type: application/json"), std::string::npos) << message;
    EXPECT_EQ(status(open, {{"Content-Type", type}}).first, 200) << type;
  }
  EXPECT_EQ(status(doors, {}).first, 415);
  EXPECT_EQ(status(open, {}).first, 200);
}

TEST(Doors, TakeNoEncodedBodies) {
  for (const bool trusts : {false, true}) {
    const Cors cors({});
    const Doors doors({.trusts_its_machine = trusts}, cors);
    for (const char* encoding : {"gzip", "GZIP", "deflate", "br", "gzip, gzip", "zstd"}) {
      const auto [status, message] = outcome_of([&] {
        doors.check_computing(
            post_with({{"Content-Type", "application/json"}, {"Content-Encoding", encoding}}));
      });
      EXPECT_EQ(status, 415);
      EXPECT_NE(message.find("Content-Encoding"), std::string::npos) << message;
    }
    EXPECT_EQ(outcome_of([&] {
                doors.check_computing(post_with(
                    {{"Content-Type", "application/json"}, {"Content-Encoding", "Identity"}}));
              }).first,
              200);
  }
}

}  // namespace
}  // namespace quire::server
