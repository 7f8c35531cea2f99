#include "cli/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "quire/error.h"

namespace quire::cli {
namespace {

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { std::filesystem::create_directories(folder_); }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int num_files() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<int>(std::distance(begin(files), end(files)));
  }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "output_file_test";
};

TEST_F(OutputFileTest, ReplacesAFileAtTheEnd) {
  const std::filesystem::path path = folder_ / "tuned.json";
  std::ofstream(path) << "before";
  {
    OutputFile file(path, "--output");
    EXPECT_EQ(read(path), "before");
    file.write("after");
  }
  EXPECT_EQ(read(path), "after");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(OutputFileTest, LeavesNothingWhereNothingIsWritten) {
  const std::filesystem::path path = folder_ / "tuned.json";
  { const OutputFile file(path, "--output"); }
  EXPECT_EQ(num_files(), 0);
}

TEST_F(OutputFileTest, SaysAtOnceWhatCannotBeWritten) {
  EXPECT_THAT([&] { OutputFile(folder_ / "missing" / "tuned.json", "--output"); },
              testing::ThrowsMessage<Error>(testing::AllOf(testing::HasSubstr("--output"),
                                                           testing::HasSubstr("No such file"))));
  EXPECT_THAT([&] { OutputFile(folder_, "--output"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected a file")));
}

}  // namespace
}  // namespace quire::cli
