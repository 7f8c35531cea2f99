#include "cli/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

class OutputFileTest : public testing::Test {
 protected:
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int num_files() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<int>(std::distance(begin(files), end(files)));
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
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

TEST_F(OutputFileTest, TriesWithoutATrace) {
  const std::filesystem::path path = folder_ / "tuned.json";
  const std::filesystem::path others = folder_ / "tuned.json.partial";
  std::ofstream(others) << "somebody's";
  const OutputFile file(path, "--output");
  EXPECT_EQ(num_files(), 1);
  file.write("after");
  EXPECT_EQ(num_files(), 2);
  EXPECT_EQ(read(others), "somebody's");
}

TEST_F(OutputFileTest, KeepsTheMode) {
  const std::filesystem::path path = folder_ / "tuned.json";
  std::ofstream(path) << "before";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  OutputFile(path, "--output").write("after");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST_F(OutputFileTest, ReplacesWhatALinkLeadsTo) {
  namespace fs = std::filesystem;
  fs::create_directories(folder_ / "there");
  std::ofstream(folder_ / "there" / "tuned.json") << "before";
  fs::create_symlink("there/second", folder_ / "first");
  fs::create_symlink("tuned.json", folder_ / "there" / "second");
  OutputFile(folder_ / "first", "--output").write("after");
  EXPECT_EQ(read(folder_ / "there" / "tuned.json"), "after");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "there" / "second"));
  // One that leads to nothing says where the file is to be.
  fs::remove(folder_ / "there" / "tuned.json");
  OutputFile(folder_ / "first", "--output").write("new");
  EXPECT_EQ(read(folder_ / "there" / "tuned.json"), "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first"));
}

TEST_F(OutputFileTest, RefusesWhatIsNoFile) {
  namespace fs = std::filesystem;
  fs::create_symlink("/dev/null", folder_ / "null");
  fs::create_symlink("/proc/self/fd/1", folder_ / "stdout");
  fs::create_symlink("loop", folder_ / "loop");
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  for (const fs::path& path :
       {fs::path("/dev/null"), fs::path("/dev/stdout"), fs::path("/dev/new"),
        fs::path("/proc/self/fd/1"), folder_ / "null", folder_ / "stdout", folder_ / "fifo",
        folder_ / "loop", folder_, folder_ / "", folder_ / "."}) {
    EXPECT_THAT([&] { OutputFile(path, "--output"); },
                testing::ThrowsMessage<Error>(
                    testing::AllOf(testing::StartsWith("--output: "),
                                   testing::AnyOf(testing::HasSubstr("expected a file"),
                                                  testing::HasSubstr("Too many levels")))))
        << path;
  }
  EXPECT_EQ(num_files(), 4);
}

TEST_F(OutputFileTest, SaysWhichFileCannotBeReplaced) {
  const std::filesystem::path path = folder_ / "tuned.json";
  const OutputFile file(path, "--output");
  std::filesystem::create_directories(path / "full");
  EXPECT_THAT([&] { file.write("after"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(path.string())));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT([&] { file.write("after"); },
              testing::ThrowsMessage<Error>(testing::AllOf(testing::HasSubstr(path.string()),
                                                           testing::HasSubstr("No such file"))));
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
