#include "web/assets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

namespace quire::web {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string text(std::string_view path) {
  const Asset* asset = find_asset(path);
  return asset ? std::string(asset->body) : "";
}

TEST(Assets, ThePageIsAtTheRoot) {
  const Asset* page = find_asset("/");
  ASSERT_NE(page, nullptr);
  EXPECT_EQ(page->content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page->body, StartsWith("<!doctype html>"));
}

TEST(Assets, AnUnknownPathIsNull) {
  for (const char* path : {"", "/page", "/page/", "/page/absent.js", "/index.html", "/zzz"}) {
    EXPECT_EQ(find_asset(path), nullptr) << path;
  }
}

TEST(Assets, EachIsFoundByItsPathAndComplete) {
  std::size_t size = 0;
  std::set<std::string_view> etags;
  for (const Asset& asset : assets()) {
    EXPECT_EQ(find_asset(asset.path), &asset);
    EXPECT_FALSE(asset.body.empty()) << asset.path;
    EXPECT_THAT(asset.gzip_body, StartsWith("\x1f\x8b")) << asset.path;
    EXPECT_THAT(std::string(asset.etag), MatchesRegex("W/\"[0-9a-f]+\"")) << asset.path;
    etags.insert(asset.etag);
    size += asset.body.size() + asset.gzip_body.size();
  }
  EXPECT_THAT(etags, SizeIs(assets().size()));
  EXPECT_LT(size, 1'000'000u);
}

// gzip's last four bytes are the size of what was packed.
TEST(Assets, TheCompressedBodyIsOfTheSameFile) {
  for (const Asset& asset : assets()) {
    std::size_t size = 0;
    for (int i = 1; i <= 4; ++i) {
      size = size << 8 | static_cast<unsigned char>(asset.gzip_body[asset.gzip_body.size() - i]);
    }
    EXPECT_EQ(size, asset.body.size()) << asset.path;
  }
}

TEST(Assets, LibrariesAreThere) {
  EXPECT_THAT(text("/page/lib/marked.js"), HasSubstr("marked"));
  EXPECT_THAT(text("/page/lib/purify.js"), HasSubstr("DOMPurify"));
  EXPECT_THAT(text("/page/lib/highlight.js"), HasSubstr("registerLanguage(\"python\""));
  EXPECT_THAT(text("/page/lib/chart.js"), HasSubstr("Chart"));
  EXPECT_THAT(text("/page/lib/licences.txt"), HasSubstr("libjs-marked"));
}

// Every file that the page names is embedded, and it names no other place.
TEST(Assets, WhatIsReferredToIsThere) {
  const std::regex reference(R"re((?:src|href)="([^"#$]+)"|from "(\./[^"]+)")re");
  for (const Asset& asset : assets()) {
    if (asset.path.starts_with("/page/lib/")) continue;
    const std::string body(asset.body);
    for (std::sregex_iterator it(body.begin(), body.end(), reference), end; it != end; ++it) {
      const std::string path =
          (*it)[1].matched ? (*it)[1].str() : "/page" + (*it)[2].str().substr(1);
      EXPECT_NE(find_asset(path), nullptr) << asset.path << " refers to " << path;
    }
  }
}

// The policy would block them, so that a feature silently did not work.
TEST(Assets, NoInlineScriptOrStyle) {
  const std::string page = text("/");
  EXPECT_THAT(page, Not(HasSubstr("<style")));
  EXPECT_THAT(page, Not(HasSubstr("style=")));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(<script(?![^>]*src=))")));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(\son[a-z]+=)")));
}

}  // namespace
}  // namespace quire::web
