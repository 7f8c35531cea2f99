#include "engine/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void write_name_to(const fs::path& path) {
  std::ofstream(path) << path.filename().string();
}

TEST(OutputFolder, AppearsWhenItIsComplete) {
  const TemporaryFolder root;
  const fs::path out = root.path() / "out";
  {
    OutputFolder folder(out, "written");
    write_name_to(folder.partial() / "config.json");
    EXPECT_FALSE(fs::exists(out));
    folder.put_in_place();
    EXPECT_FALSE(fs::exists(folder.partial()));
  }
  EXPECT_TRUE(fs::exists(out / "config.json"));
}

TEST(OutputFolder, IsRemovedWhereItIsNotPutInPlace) {
  const TemporaryFolder root;
  { const OutputFolder folder(root.path() / "out", "written"); }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

// A process of the same number may have been killed.
TEST(OutputFolder, LeavesAnotherPartialFolder) {
  const TemporaryFolder root;
  const fs::path stale = root.path() / ("out." + std::to_string(getpid()) + ".partial");
  fs::create_directory(stale);
  write_name_to(stale / "model.safetensors");
  {
    OutputFolder folder(root.path() / "out", "written");
    EXPECT_NE(folder.partial(), stale);
    folder.put_in_place();
  }
  EXPECT_TRUE(fs::exists(root.path() / "out"));
  EXPECT_TRUE(fs::exists(stale / "model.safetensors"));
}

TEST(OutputFolder, FillsAnEmptyFolder) {
  const TemporaryFolder root;
  OutputFolder folder(root.path(), "written");
  EXPECT_EQ(folder.partial().parent_path(), fs::canonical(root.path()));
  write_name_to(folder.partial() / "config.json");
  fs::create_directory(folder.partial() / "additional_chat_templates");
  write_name_to(folder.partial() / "additional_chat_templates" / "tool_use.jinja");
  folder.put_in_place();
  EXPECT_TRUE(fs::exists(root.path() / "config.json"));
  EXPECT_TRUE(fs::exists(root.path() / "additional_chat_templates" / "tool_use.jinja"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), fs::directory_iterator()), 2);
}

TEST(OutputFolder, SeesWhatCameWhileItWasWritten) {
  const TemporaryFolder root;
  OutputFolder folder(root.path(), "written");
  write_name_to(root.path() / "other");
  try {
    folder.put_in_place();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the folder is not empty, it has other;"));
    EXPECT_THAT(error.what(), HasSubstr("What was written is complete as "));
  }
  // The work of hours.
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace quire
