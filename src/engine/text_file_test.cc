#include "engine/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> texts_of(const std::string& name, const std::string& content) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / name) << content;
  TextFile file(folder.path() / name);
  std::vector<std::string> texts;
  while (const auto text = file.next()) texts.emplace_back(*text);
  return texts;
}

TEST(TextFile, OneText) {
  EXPECT_THAT(texts_of("a.txt", "one\ntwo\n"), ElementsAre("one\ntwo\n"));
  EXPECT_THAT(texts_of("a.txt", ""), ElementsAre());
}

TEST(TextFile, ATextInEachLine) {
  EXPECT_THAT(texts_of("a.jsonl", "{\"text\": \"one\\ntwo\"}\n\n{\"text\": \"\", \"id\": 3}\r\n"),
              ElementsAre("one\ntwo", ""));
  EXPECT_THAT(texts_of("a.jsonl", "{\"text\": \"no line feed\"}"), ElementsAre("no line feed"));
}

TEST(TextFile, NamesALineThatHoldsNone) {
  try {
    texts_of("a.jsonl", "{\"text\": \"one\"}\n{\"texts\": 1}\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.jsonl, line 2: expected an object with a \"text\"."));
  }
}

TEST(LeadingLines, EndAtALineOrACharacter) {
  EXPECT_EQ(leading_lines("one\ntwo\nthree", 100), "one\ntwo\nthree");
  EXPECT_EQ(leading_lines("one\ntwo\nthree", 10), "one\ntwo\n");
  EXPECT_EQ(leading_lines("abc\xC3\xA9xyz", 4), "abc");
  EXPECT_EQ(leading_lines("abc\xC3\xA9xyz", 5), "abc\xC3\xA9");
  EXPECT_EQ(leading_lines("\x80\x80\x80", 2).size(), 1u);  // no UTF-8, and still an end
}

}  // namespace
}  // namespace quire
