#include "hub/repo_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "hub/content_hash.h"
#include "hub/file_selection.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kListedCommit(40, 'c');

std::string listing_json(const std::string& siblings) {
  return R"({"id": "org/name", "sha": ")" + kListedCommit + R"(", "siblings": [)" + siblings + "]}";
}

std::string small_file(const std::string& name) {
  return R"({"rfilename": ")" + name + R"(", "size": 3, "blobId": ")" + std::string(40, 'a') +
         R"("})";
}

template <typename F>
std::string error_of(F function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

RepoListing listing_of(std::initializer_list<const char*> names) {
  RepoListing listing{kListedCommit, {}};
  for (const char* name : names) {
    listing.files.push_back({name, 3, {ContentId::Kind::kGitBlob, std::string(40, 'a')}});
  }
  return listing;
}

std::vector<std::string> selected(const RepoListing& listing, const FilePatterns& patterns = {},
                                  const std::set<std::string>& shards = {}) {
  std::vector<std::string> names;
  for (const RemoteFile& file : select_files(listing, patterns, shards, "org/name")) {
    names.push_back(file.name);
  }
  return names;
}

TEST(RepoListingTest, ReadsWhatTheHubSays) {
  const std::string large = R"({"rfilename": "w.safetensors", "size": 9, "blobId": "whatever",
      "lfs": {"sha256": ")" +
                            std::string(64, 'b') + R"(", "size": 9, "pointerSize": 134}})";
  const RepoListing listing =
      parse_repo_listing(listing_json(large + "," + small_file("config.json")), "hub");
  EXPECT_EQ(listing.commit, kListedCommit);
  EXPECT_THAT(
      listing.files,
      ElementsAre(
          RemoteFile{"config.json", 3, {ContentId::Kind::kGitBlob, std::string(40, 'a')}},
          RemoteFile{"w.safetensors", 9, {ContentId::Kind::kSha256, std::string(64, 'b')}}));
  EXPECT_NE(listing.find("config.json"), nullptr);
  EXPECT_EQ(listing.find("config"), nullptr);
}

TEST(RepoListingTest, RefusesWhatIsNone) {
  const auto error = [](const std::string& json) {
    return error_of([&] { parse_repo_listing(json, "hub"); });
  };
  EXPECT_THAT(error(""), HasSubstr("hub: expected JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("object"));
  EXPECT_THAT(error(R"({"sha": "main", "siblings": []})"), HasSubstr("commit"));
  EXPECT_THAT(error(R"({"sha": ")" + kListedCommit + "\"}"), HasSubstr("siblings"));
  EXPECT_THAT(error(listing_json("{}")), HasSubstr("no name"));
  EXPECT_THAT(error(listing_json(small_file("a\\u0000b"))), HasSubstr("'a\\0b' is refused"));
  EXPECT_THAT(error(listing_json(small_file("a") + "," + small_file("a"))), HasSubstr("twice"));
  EXPECT_THAT(error(listing_json(small_file("a/b/c") + "," + small_file("a/b"))),
              HasSubstr("a/b is listed as a file and as a folder"));
  EXPECT_THAT(error(std::string(100'000, '[')), HasSubstr("nested deeper"));
}

TEST(RepoListingTest, PathsThatLeadElsewhereAreUnsafe) {
  for (const char* path :
       {"a", "a/b.c", "..a", "a..", "...", ".a", "a b", "\xc3\xa4/\xe2\x82\xac"}) {
    EXPECT_EQ(unsafe_path(path), "") << path;
  }
  for (const char* path :
       {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "./a"}) {
    EXPECT_NE(unsafe_path(path), "") << path;
  }
  EXPECT_EQ(unsafe_path(std::string(255, 'a')), "");
  EXPECT_NE(unsafe_path(std::string(256, 'a')), "");
  EXPECT_NE(unsafe_path(std::string(1025, '/')), "");
  EXPECT_NE(unsafe_path(std::string_view("a\0b", 3)), "");
}

TEST(RepoListingTest, AnIndexListsShardsInItsOwnFolder) {
  EXPECT_THAT(parse_index_shards(R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors",
                                 "z": "b.safetensors"}})",
                                 "index"),
              ElementsAre("a.safetensors", "b.safetensors"));
  for (const char* json :
       {"{}", R"({"weight_map": {}})", R"({"weight_map": []})", R"({"weight_map": {"x": 1}})",
        R"({"weight_map": {"x": "../a.safetensors"}})", R"({"weight_map": {"x": "a.bin"}})"}) {
    EXPECT_THAT(error_of([&] { parse_index_shards(json, "index"); }), HasSubstr("weight_map"))
        << json;
  }
}

TEST(FileSelectionTest, TakesWhatQuireReadsAndTheWeightsLast) {
  EXPECT_THAT(
      selected(listing_of({"README.md", "chat_template.jinja", "config.json", "model.safetensors",
                           "onnx/model.onnx", "pytorch_model.bin", "tokenizer.json",
                           "tokenizer.model"})),
      ElementsAre("config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"));
}

TEST(FileSelectionTest, OneFileGoesBeforeShards) {
  const RepoListing both = listing_of(
      {"config.json", "model.safetensors", "model.safetensors.index.json", "s.safetensors"});
  EXPECT_FALSE(needs_shard_index(both, {}));
  EXPECT_THAT(selected(both), ElementsAre("config.json", "model.safetensors"));
  const RepoListing shards = listing_of(
      {"config.json", "consolidated.safetensors", "model.safetensors.index.json", "s.safetensors"});
  EXPECT_TRUE(needs_shard_index(shards, {}));
  EXPECT_FALSE(needs_shard_index(shards, {{"*.json"}, {}}));
  EXPECT_THAT(selected(shards, {}, {"s.safetensors"}),
              ElementsAre("config.json", "model.safetensors.index.json", "s.safetensors"));
}

TEST(FileSelectionTest, PatternsAreHuggingFaces) {
  const RepoListing listing = listing_of({"a.txt", "b/c.txt", "config.json", "model.safetensors"});
  EXPECT_THAT(selected(listing, {{"*.txt"}, {}}), ElementsAre("a.txt", "b/c.txt"));
  EXPECT_THAT(selected(listing, {{"*"}, {"b/", "*.json"}}),
              ElementsAre("a.txt", "model.safetensors"));
  EXPECT_THAT(selected(listing, {{}, {"*.json"}}), ElementsAre("model.safetensors"));
  EXPECT_THAT(error_of([&] { selected(listing, {{"x"}, {}}); }), HasSubstr("none of its 4 files"));
}

TEST(ContentHashTest, NamesContentAsGitAndSha256sumDo) {
  // printf 'hello\n' | git hash-object --stdin; printf 'hello\n' | sha256sum
  ContentHash git(ContentId::Kind::kGitBlob, 6);
  git.update("hello\n");
  EXPECT_EQ(git.finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
  ContentHash sha(ContentId::Kind::kSha256, 6);
  sha.update("hel");
  sha.update("lo\n");
  EXPECT_EQ(sha.finish(), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
}

}  // namespace
}  // namespace quire
