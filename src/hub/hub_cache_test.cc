#include "hub/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/mapped_file.h"
#include "base/temporary_folder_test_util.h"
#include "hub/partial_blob.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// The content "hello\n" under its names.
const RemoteFile kHello{
    "a/hello.txt", 6, {ContentId::Kind::kGitBlob, "ce013625030ba8dba906f756967f9e9ca394464a"}};
const std::string kCommit(40, 'c');

class HubCacheTest : public testing::Test {
 protected:
  void SetUp() override { cache_.emplace(root_, "org/name"); }

  void download_hello() {
    PartialBlob blob(*cache_, kHello);
    ASSERT_TRUE(blob.resume({}));
    blob.append("hello\n");
    ASSERT_EQ(blob.finish(), std::nullopt);
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::optional<HubCache> cache_;
};

TEST_F(HubCacheTest, LaysFilesOutAsHuggingFaceDoes) {
  cache_->prepare();
  download_hello();
  EXPECT_FALSE(cache_->has_file(kCommit, kHello));
  ASSERT_TRUE(cache_->publish("main", kCommit, {kHello}, {}));
  const fs::path link = root_ / "models--org--name" / "snapshots" / kCommit / "a" / "hello.txt";
  EXPECT_EQ(fs::read_symlink(link), "../../../blobs/" + kHello.id.hex);
  EXPECT_EQ(read_text_file(link, 10), "hello\n");
  EXPECT_EQ(read_text_file(root_ / "models--org--name" / "refs" / "main", 100), kCommit);
  EXPECT_TRUE(cache_->has_file(kCommit, kHello));
  EXPECT_TRUE(cache_->has_ref("main", kCommit));
  EXPECT_TRUE(cache_->has_ref(kCommit, kCommit));
  EXPECT_FALSE(cache_->has_ref("main", std::string(40, 'd')));
  EXPECT_TRUE(fs::exists(root_ / "CACHEDIR.TAG"));
}

TEST_F(HubCacheTest, ALinkThatLeadsNowhereIsReplaced) {
  cache_->prepare();
  download_hello();
  const fs::path link = cache_->snapshot(kCommit) / kHello.name;
  fs::create_directories(link.parent_path());
  fs::create_symlink("/nowhere", link);
  ASSERT_TRUE(cache_->publish("main", kCommit, {kHello}, {}));
  EXPECT_TRUE(cache_->has_file(kCommit, kHello));
}

TEST_F(HubCacheTest, WorksWithARelativeRoot) {
  const fs::path previous = fs::current_path();
  fs::current_path(root_);
  cache_.emplace("cache", "org/name");
  cache_->prepare();
  download_hello();
  EXPECT_TRUE(cache_->publish("main", kCommit, {kHello}, {}));
  fs::current_path(previous);
  EXPECT_EQ(read_text_file(root_ / "cache/models--org--name/snapshots" / kCommit / kHello.name, 10),
            "hello\n");
}

TEST_F(HubCacheTest, APartialBlobGoesOnWhereItStopped) {
  cache_->prepare();
  {
    PartialBlob blob(*cache_, kHello);
    ASSERT_TRUE(blob.resume({}));
    blob.append("hel");
  }
  EXPECT_EQ(cache_->incomplete_bytes(kHello), 3);
  EXPECT_FALSE(cache_->has_blob(kHello));
  PartialBlob blob(*cache_, kHello);
  ASSERT_TRUE(blob.resume({}));
  EXPECT_EQ(blob.size(), 3);
  blob.append("lo\n");
  EXPECT_EQ(blob.finish(), std::nullopt);
  EXPECT_TRUE(cache_->has_blob(kHello));
  EXPECT_FALSE(fs::exists(cache_->incomplete_blob(kHello.id)));
}

TEST_F(HubCacheTest, AWrongHashStartsAnew) {
  cache_->prepare();
  PartialBlob blob(*cache_, kHello);
  ASSERT_TRUE(blob.resume({}));
  blob.append("HELLO\n");
  EXPECT_THAT(blob.finish(), testing::Optional(testing::SizeIs(40)));
  EXPECT_EQ(blob.size(), 0);
  EXPECT_FALSE(cache_->has_blob(kHello));
  blob.append("hello\n");
  EXPECT_EQ(blob.finish(), std::nullopt);
}

TEST_F(HubCacheTest, WhatIsLongerThanTheFileIsNoPartOfIt) {
  cache_->prepare();
  std::ofstream(cache_->incomplete_blob(kHello.id)) << "hello\nand more";
  EXPECT_EQ(cache_->incomplete_bytes(kHello), 0);
  PartialBlob blob(*cache_, kHello);
  ASSERT_TRUE(blob.resume({}));
  EXPECT_EQ(blob.size(), 0);
}

TEST_F(HubCacheTest, ALinkInTheWayIsNotFollowed) {
  cache_->prepare();
  fs::create_symlink(root_ / "victim", cache_->incomplete_blob(kHello.id));
  EXPECT_THROW(PartialBlob(*cache_, kHello), Error);
  EXPECT_FALSE(fs::exists(root_ / "victim"));
}

TEST_F(HubCacheTest, ALockIsHeldByOne) {
  const fs::path path = root_ / "lock";
  auto first = FileLock::acquire(path, {}, [] { FAIL(); });
  ASSERT_TRUE(first);
  std::stop_source stop;
  // It waits, and is stopped while it does.
  EXPECT_FALSE(FileLock::acquire(path, stop.get_token(), [&] { stop.request_stop(); }));
  first.reset();
  EXPECT_TRUE(FileLock::acquire(path, {}, [] { FAIL(); }));
}

TEST_F(HubCacheTest, ALockWhoseFileWasDeletedIsTakenAnew) {
  const fs::path path = root_ / "lock";
  const auto first = FileLock::acquire(path, {}, [] {});
  fs::remove(path);
  EXPECT_TRUE(FileLock::acquire(path, {}, [] { FAIL(); }));
}

}  // namespace
}  // namespace quire
