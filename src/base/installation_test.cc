#include "base/installation.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

namespace fs = std::filesystem;

TEST(Installation, FindsTheProgramThatItIsLinkedInto) {
  std::error_code error;
  const fs::path folder = code_folder(error);
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(is_shared_library());
  EXPECT_EQ(folder, fs::read_symlink("/proc/self/exe").parent_path());
}

TEST(Installation, ThePrefixIsAboveTheProgramsFolder) {
  std::error_code error;
  const fs::path prefix = installation_prefix(error);
  EXPECT_FALSE(error) << error.message();
  EXPECT_TRUE(prefix.is_absolute());
  // "/a" is above "/a/bin", whatever the programs' folder is called.
  const fs::path below = code_folder(error).lexically_relative(prefix);
  EXPECT_FALSE(below.empty());
  EXPECT_NE(*below.begin(), "..");
}

}  // namespace
}  // namespace quire
