#include "server/adapter_paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/temporary_folder_test_util.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

class AdapterPaths : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"allowed/good", "allowed/deep/er", "elsewhere/secret", "allowed-too"}) {
      fs::create_directories(root() / name);
    }
    std::ofstream(root() / "allowed/good/adapter_config.json") << "{}";
    std::ofstream(root() / "elsewhere/secret/weights") << "x";
    std::ofstream(root() / "allowed/file") << "x";
  }
  fs::path root() const { return fs::canonical(folder_.path()); }
  std::string allowed() const { return (root() / "allowed").string(); }
  // The path within the root, or the status of the refusal.
  std::string found(const std::string& path) const {
    try {
      return fs::path(adapter_folder(path, allowed())).lexically_relative(root()).string();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param, "lora_path");
      return std::to_string(error.status);
    }
  }

  TemporaryFolder folder_;
};

TEST_F(AdapterPaths, FoldersBelowTheOneThatIsAllowed) {
  EXPECT_EQ(found("good"), "allowed/good");
  EXPECT_EQ(found("./deep/../good/"), "allowed/good");
  EXPECT_EQ(found(allowed() + "/deep/er"), "allowed/deep/er");
  EXPECT_EQ(found("none"), "404");
  EXPECT_EQ(found("file"), "404");
}

TEST_F(AdapterPaths, WhatIsElsewhereIsRefusedWhetherItIsThereOrNot) {
  for (const std::string& path : {std::string("../elsewhere/secret"), std::string("../none"),
                                  std::string("good/../../elsewhere"), std::string("/etc"),
                                  std::string("/none"), allowed() + "-too", std::string("..")}) {
    EXPECT_EQ(found(path), "400") << path;
  }
  EXPECT_EQ(found(std::string("good\0/../../elsewhere", 21)), "400");
}

TEST_F(AdapterPaths, LinksMayNotLeaveIt) {
  fs::create_directory_symlink(root() / "elsewhere/secret", root() / "allowed/link");
  EXPECT_EQ(found("link"), "400");
  fs::create_directory_symlink(root() / "allowed/good", root() / "allowed/alias");
  EXPECT_EQ(found("alias"), "allowed/good");
  fs::create_directory(root() / "allowed/files");
  fs::create_symlink(root() / "elsewhere/secret/weights", root() / "allowed/files/weights");
  EXPECT_EQ(found("files"), "400");
  fs::remove(root() / "allowed/files/weights");
  fs::create_symlink("../good/adapter_config.json", root() / "allowed/files/weights");
  EXPECT_EQ(found("files"), "allowed/files");
}

TEST_F(AdapterPaths, BehindLinksNothingTellsWhatIsThere) {
  fs::create_directory_symlink(root() / "elsewhere", root() / "allowed/link");
  fs::create_directory_symlink(root() / "elsewhere/none", root() / "allowed/dangling");
  fs::create_directory_symlink("../allowed/link", root() / "allowed/twice");
  fs::create_directory_symlink("round", root() / "allowed/round");
  for (const char* path : {"link/secret", "link/none", "link/secret/weights", "link/none/../x",
                           "dangling", "twice/secret", "twice/none", "round", "round/x"}) {
    EXPECT_EQ(found(path), "400") << path;
  }
  fs::create_directory(root() / "allowed/files");
  fs::create_symlink(root() / "elsewhere/none", root() / "allowed/files/weights");
  EXPECT_EQ(found("files"), "400") << "a file that is a link to nothing elsewhere";
  fs::create_directory_symlink("deep", root() / "allowed/inner");
  EXPECT_EQ(found("inner/er"), "allowed/deep/er");
  EXPECT_EQ(found("inner/none"), "404");
}

TEST_F(AdapterPaths, AnyFolderWhereNoneIsNamed) {
  const std::string secret = (root() / "elsewhere/secret").string();
  EXPECT_EQ(adapter_folder(secret, ""), secret);
  EXPECT_THROW(adapter_folder(secret + "/none", ""), ApiError);
}

}  // namespace
}  // namespace quire::server
