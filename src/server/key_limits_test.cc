#include "server/key_limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kSomeOwner = "1a2b3c4d" + std::string(56, '0');
const std::string kOtherOwner = "ffffffff" + std::string(56, '0');

class KeyLimitsTest : public testing::Test {
 protected:
  KeyLimits make(KeyLimitTable table) {
    return KeyLimits(std::move(table), [this] { return now_; });
  }
  // The Retry-After of a refusal; 0: it is taken.
  static int64_t arrive(KeyLimits& limits, const std::string& owner = kSomeOwner) {
    try {
      limits.arrive(owner, /*generates=*/true);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 429);
      return error.retry_after_s.value_or(0);
    }
    limits.finish(owner);
    return 0;
  }
  static std::map<std::string, std::string> headers(KeyLimits& limits,
                                                    const std::string& owner = kSomeOwner) {
    http::Headers headers;
    limits.add_headers(owner, headers);
    return {headers.begin(), headers.end()};
  }

  KeyLimits::Clock::time_point now_ = KeyLimits::Clock::time_point(seconds(1000));
};

TEST_F(KeyLimitsTest, BoundsRequestsAMinute) {
  KeyLimits limits = make({.others = {.requests_per_minute = 6}});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(arrive(limits), 0) << i;
  EXPECT_EQ(arrive(limits), 10);
  EXPECT_EQ(arrive(limits), 10);  // one that is refused counts for nothing
  EXPECT_EQ(arrive(limits, kOtherOwner), 0);
  now_ += seconds(9);
  EXPECT_EQ(arrive(limits), 1);
  now_ += seconds(1);
  EXPECT_EQ(arrive(limits), 0);
  EXPECT_EQ(arrive(limits), 10);
  now_ += seconds(100'000);  // it fills up to a minute's worth, and no further
  for (int i = 0; i < 6; ++i) EXPECT_EQ(arrive(limits), 0) << i;
  EXPECT_EQ(arrive(limits), 10);
}

TEST_F(KeyLimitsTest, BoundsTokensAMinute) {
  KeyLimits limits = make({.others = {.tokens_per_minute = 600}});
  EXPECT_EQ(arrive(limits), 0);
  limits.charge_tokens(kSomeOwner, 599);
  EXPECT_EQ(arrive(limits), 0);
  limits.charge_tokens(kSomeOwner, 301);  // 300 more than there were
  EXPECT_EQ(arrive(limits), 31);
  EXPECT_EQ(arrive(limits, kOtherOwner), 0);
  now_ += seconds(30);
  EXPECT_EQ(arrive(limits), 1);
  now_ += milliseconds(100);
  EXPECT_EQ(arrive(limits), 0);
}

TEST_F(KeyLimitsTest, BoundsRequestsAtATime) {
  KeyLimits limits = make({.others = {.concurrent_requests = 2}});
  limits.arrive(kSomeOwner, true);
  limits.arrive(kSomeOwner, true);
  EXPECT_THROW(limits.arrive(kSomeOwner, true), ApiError);
  EXPECT_NO_THROW(limits.arrive(kSomeOwner, false));  // it generates nothing
  EXPECT_EQ(arrive(limits, kOtherOwner), 0);
  limits.finish(kSomeOwner);
  EXPECT_NO_THROW(limits.arrive(kSomeOwner, true));
}

TEST_F(KeyLimitsTest, TellsWhatIsLeft) {
  KeyLimits limits = make({.others = {.requests_per_minute = 60, .tokens_per_minute = 6000}});
  arrive(limits);
  limits.charge_tokens(kSomeOwner, 2000);
  const std::map<std::string, std::string> expected = {
      {"x-ratelimit-limit-requests", "60"},     {"x-ratelimit-remaining-requests", "59"},
      {"x-ratelimit-reset-requests", "1s"},     {"x-ratelimit-limit-tokens", "6000"},
      {"x-ratelimit-remaining-tokens", "4000"}, {"x-ratelimit-reset-tokens", "20s"}};
  EXPECT_EQ(headers(limits), expected);
  limits.charge_tokens(kSomeOwner, 34'000);
  EXPECT_EQ(headers(limits)["x-ratelimit-remaining-tokens"], "0");
  EXPECT_EQ(headers(limits)["x-ratelimit-reset-tokens"], "6m0s");
  now_ += milliseconds(500);
  EXPECT_EQ(headers(limits)["x-ratelimit-reset-requests"], "500ms");
  EXPECT_EQ(headers(limits)["x-ratelimit-reset-tokens"], "5m59.5s");
  KeyLimits none = make({});
  EXPECT_TRUE(headers(none).empty());
  for (int i = 0; i < 1000; ++i) none.arrive(kSomeOwner, true);
}

TEST_F(KeyLimitsTest, TakesNewLimitsAndKeepsCounting) {
  KeyLimits limits = make({.others = {.requests_per_minute = 3}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(arrive(limits), 0);
  EXPECT_NE(arrive(limits), 0);
  limits.set(
      {.others = {.requests_per_minute = 4}, .by_key = {{"ffffffff", {.requests_per_minute = 1}}}});
  EXPECT_EQ(arrive(limits), 0);
  EXPECT_NE(arrive(limits), 0);
  EXPECT_EQ(arrive(limits, kOtherOwner), 0);
  EXPECT_NE(arrive(limits, kOtherOwner), 0);
}

TEST(KeyLimitFile, IsReadAndChecked) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "limits.json").string();
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_key_limit_file(path);
  };
  const KeyLimitTable table = read(R"({
    "key-1a2b3c4d": {"tokens_per_minute": null, "concurrent_requests": 2},
    "default": {"requests_per_minute": 60, "tokens_per_minute": 1000}})");
  EXPECT_EQ(table.others.requests_per_minute, 60);
  EXPECT_EQ(table.others.concurrent_requests, std::nullopt);
  const KeyLimit& own = table.by_key.at("1a2b3c4d");
  EXPECT_EQ(own.requests_per_minute, 60);
  EXPECT_EQ(own.tokens_per_minute, std::nullopt);
  EXPECT_EQ(own.concurrent_requests, 2);
  EXPECT_FALSE(read("{}").others.requests_per_minute);
  for (const char* wrong :
       {"", "[]", "{", R"({"default": 5})", R"({"default": {"requests": 5}})",
        R"({"default": {"requests_per_minute": 0}})",
        R"({"default": {"requests_per_minute": 1.5}})",
        R"({"default": {"requests_per_minute": -1}})",
        R"({"default": {"requests_per_minute": "1"}})", R"({"key-1A2B3C4D": {}})",
        R"({"key-1a2b3c4": {}})", R"({"secret": {}})"}) {
    try {
      read(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_key_limit_file(path + ".absent"), Error);
}

}  // namespace
}  // namespace quire::server
