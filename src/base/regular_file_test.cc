#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::HasSubstr;

class RegularFileTest : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  template <typename F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "file";
};

TEST_F(RegularFileTest, BytesStayWhenTheFileIsWrittenAnew) {
  write("hello");
  const FileBytes content = read_file_bytes(path_);
  write("");
  const auto bytes = content.bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "hello");
  EXPECT_TRUE(read_file_bytes(path_).bytes().empty());
}

TEST_F(RegularFileTest, AFileThatChangesMeanwhileIsAnError) {
  write("hello");
  const RegularFile file(path_);
  file.check_unchanged();
  write("hello, world");
  EXPECT_THAT(error_of([&] { file.check_unchanged(); }), HasSubstr("written to while it was read"));
  write("hell");
  std::vector<std::byte> bytes(file.size());
  EXPECT_THAT(error_of([&] { file.read(bytes); }), HasSubstr("shrank while it was read"));
  // Of the same length.
  write("holla");
  std::filesystem::last_write_time(
      path_, std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  EXPECT_THAT(error_of([&] { file.check_unchanged(); }), HasSubstr("written to while it was read"));
}

TEST_F(RegularFileTest, WhatIsNoFileIsAnError) {
  EXPECT_THAT(error_of([&] { read_file_bytes(path_); }), HasSubstr("can't be opened"));
  EXPECT_THAT(error_of([&] { read_file_bytes(folder_.path()); }), HasSubstr("expected a file"));
}

}  // namespace
}  // namespace quire
