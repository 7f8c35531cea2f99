#include "hub/hub_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using End = HttpResult::End;

const HubTarget kList{"https://hub.test", "org/name", "v1", "", false};
const HubTarget kFile{"https://hub.test", "org/name", "v1", "config.json", true};

HttpHead head_of(int status, const std::string& code = "") {
  HttpHead head;
  head.status = status;
  head.origin = "https://hub.test";
  head.from_hub = true;
  head.error_code = code;
  return head;
}

// What failed() throws at once.
std::string error_of(const HubTarget& target, End end, const HttpHead& head) {
  Attempts attempts(target, false, {}, [](const std::string&) {});
  try {
    attempts.failed({end, head, "why"});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Whether failed() would wait for another attempt.
bool is_temporary(End end, const HttpHead& head) {
  std::stop_source stop;
  bool noted = false;
  Attempts attempts(kFile, false, stop.get_token(), [&](const std::string&) {
    noted = true;
    stop.request_stop();  // so that nothing is waited for
  });
  try {
    EXPECT_FALSE(attempts.failed({end, head, "why"}));
  } catch (const Error&) {
  }
  return noted;
}

TEST(HubRequestTest, WhatMayPassIsTriedAgain) {
  EXPECT_TRUE(is_temporary(End::kCut, {}));
  EXPECT_TRUE(is_temporary(End::kUnreachable, {}));
  EXPECT_FALSE(is_temporary(End::kFailed, {}));
  for (const int status : {200, 206, 408, 416, 429, 500, 502, 503, 504}) {
    EXPECT_TRUE(is_temporary(End::kAnswered, head_of(status))) << status;
  }
  for (const int status : {400, 401, 403, 404, 410, 451}) {
    EXPECT_FALSE(is_temporary(End::kAnswered, head_of(status))) << status;
  }
}

TEST(HubRequestTest, ASignedAddressMayHaveExpired) {
  HttpHead head = head_of(403);
  head.from_hub = false;
  EXPECT_TRUE(is_temporary(End::kAnswered, head));
  head.error_code = "GatedRepo";  // a mirror sent us to the hub itself
  EXPECT_FALSE(is_temporary(End::kAnswered, head));
}

TEST(HubRequestTest, RefusalsSayWhatToDo) {
  const auto message = [](const HubTarget& target, int status, const char* code = "") {
    return error_of(target, End::kAnswered, head_of(status, code));
  };
  EXPECT_THAT(message(kList, 403, "GatedRepo"),
              AllOf(HasSubstr("https://hub.test/org/name"), HasSubstr("set HF_TOKEN")));
  EXPECT_THAT(message(kFile, 403, "GatedRepo"), HasSubstr("without access"));
  EXPECT_THAT(message(kList, 401, "RepoNotFound"), HasSubstr("no such model"));
  EXPECT_THAT(message(kFile, 401), HasSubstr("check HF_TOKEN"));
  EXPECT_THAT(message(kList, 404, "RevisionNotFound"), HasSubstr("no revision v1"));
  EXPECT_THAT(message(kList, 404), HasSubstr("no such model or no revision v1"));
  EXPECT_THAT(message(kFile, 404), HasSubstr("config.json"));
  EXPECT_THAT(message(kList, 400), HasSubstr("HTTP 400"));
  EXPECT_THAT(error_of(kFile, End::kFailed, {}), HasSubstr("org/name: config.json: why."));
}

TEST(HubRequestTest, WaitsAsLongAsTheHubAsks) {
  HttpHead head = head_of(429);
  EXPECT_EQ(hub_internal::asked_wait_s(head), 0);
  head.rate_limit = R"("api";r=0;t=55)";
  EXPECT_EQ(hub_internal::asked_wait_s(head), 55);
  head.retry_after_s = 7;
  EXPECT_EQ(hub_internal::asked_wait_s(head), 7);
  head.retry_after_s = 100'000;
  EXPECT_THAT(error_of(kList, End::kAnswered, head), HasSubstr("asks to wait for 100000 s"));
}

TEST(HubRequestTest, UrlsAreEncoded) {
  EXPECT_EQ(url_encode("a b/c?#%\xc3", true), "a%20b/c%3F%23%25%C3");
  EXPECT_EQ(url_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace quire
