#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  template <typename F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, ShowsTheFilesBytesWhileItLives) {
  MappedFile file = MappedFile::open(write("a", "hello"));
  std::filesystem::remove(folder_ / "a");
  EXPECT_EQ(text_of(file), "hello");
  MappedFile moved = std::move(file);
  EXPECT_EQ(text_of(moved), "hello");
  EXPECT_TRUE(file.bytes().empty());  // NOLINT(bugprone-use-after-move): a moved-from file is empty
  moved = MappedFile::open(write("b", "other"));
  EXPECT_EQ(text_of(moved), "other");
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const MappedFile file = MappedFile::open(write("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.release(file.bytes());
  file.will_need(file.bytes());
}

TEST_F(MappedFileTest, AdviceLeavesTheContentsAsTheyAre) {
  const std::string text(100'000, 'x');
  const MappedFile file = MappedFile::open(write("big", text));
  file.will_need(file.bytes().subspan(5000, 50'000));
  file.release(file.bytes().subspan(1, 80'000));
  file.release(file.bytes().subspan(10, 20));
  EXPECT_EQ(text_of(file), text);
}

TEST_F(MappedFileTest, SaysWhatIsWrongWithAPath) {
  EXPECT_THAT(error_of([&] { MappedFile::open(folder_ / "missing"); }),
              testing::AllOf(HasSubstr("missing"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { MappedFile::open(folder_); }), HasSubstr("expected a file"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { MappedFile::open(folder_ / "pipe"); }), HasSubstr("expected a file"));
}

TEST_F(MappedFileTest, ReadsTextUpToALimit) {
  const auto path = write("text", std::string("a\0b", 3));
  EXPECT_EQ(read_text_file(path, 3), std::string("a\0b", 3));
  EXPECT_THAT(error_of([&] { read_text_file(path, 2); }),
              testing::AllOf(HasSubstr("has 3 bytes"), HasSubstr("at most 2")));
  EXPECT_EQ(read_text_file(write("empty", ""), 0), "");
}

}  // namespace
}  // namespace quire
