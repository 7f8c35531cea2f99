#include "loader/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/gguf_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;

GgufFile parse_gguf(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf");
}

std::string gguf_error(const std::string& bytes) {
  // A copy of exactly this size, so that a sanitizer sees a read past the end.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  try {
    GgufFile::parse(std::as_bytes(std::span(copy)), "m.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string gguf_error(const GgufWriter& writer) {
  return gguf_error(writer.str());
}

// What `ask` throws.
template <typename Ask>
std::string key_error(const GgufFile& file, Ask ask) {
  try {
    ask(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufFileTest, ReadsMetadataAndTensors) {
  const std::string bytes = GgufWriter()
                                .text("general.architecture", "qwen3")
                                .integer("n", 7)
                                .number("x", 0.5f)
                                .boolean("yes", true)
                                .entry("big", 10, number_bytes<uint64_t>(5))
                                .entry("small", 1, number_bytes<int8_t>(-3))
                                .integers("ints", {1, -2})
                                .numbers("floats", {1.5f, 2.5f})
                                .texts("strings", {"", "ab"})
                                .tensor("a", kF32, {2, 3}, std::string(24, 'x'))
                                .tensor("b", kQ8_0, {2, 64}, std::string(4 * 34, 'y'))
                                .str();
  const GgufFile file = parse_gguf(bytes);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.required_string("general.architecture"), "qwen3");
  EXPECT_EQ(file.required_integer("n", 0, 10), 7);
  EXPECT_EQ(file.number("x", 0, 1), 0.5);
  EXPECT_EQ(file.number("n", 0, 10), 7.0);
  EXPECT_EQ(file.boolean("yes"), true);
  EXPECT_EQ(file.integer("big", 0, 5), 5);
  EXPECT_EQ(file.integer("small", -3, 5), -3);
  EXPECT_THAT(*file.integers("ints", -2, 2), ElementsAre(1, -2));
  EXPECT_THAT(*file.floats("floats"), ElementsAre(1.5f, 2.5f));
  EXPECT_THAT(*file.strings("strings"), ElementsAre("", "ab"));
  EXPECT_EQ(file.integer("none", 0, 1), std::nullopt);
  EXPECT_FALSE(file.has("none"));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(file.tensors()[0].data.size(), 24u);
  EXPECT_EQ(file.tensors()[1].type->name, "Q8_0");
  EXPECT_EQ(file.tensors()[1].data.front(), std::byte{'y'});
}

TEST(GgufFileTest, ReadsVersion2AndItsOwnAlignment) {
  GgufWriter writer;
  writer.version = 2;
  writer.alignment = 8;
  writer.integer("general.alignment", 8)
      .tensor("a", kF32, {1}, "abcd")
      .tensor("b", kF32, {1}, "efgh");
  const std::string bytes = writer.str();
  const GgufFile file = parse_gguf(bytes);
  EXPECT_EQ(file.tensors()[1].data.front(), std::byte{'e'});
}

TEST(GgufFileTest, RefusesOtherFormatsVersionsAndByteOrders) {
  EXPECT_THAT(gguf_error(std::string()), HasSubstr("m.gguf: the file does not begin with GGUF"));
  EXPECT_THAT(gguf_error(std::string("GGU")), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(gguf_error(std::string("PK\3\4....")), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(gguf_error(std::string("GGUF")), HasSubstr("ends within its head"));
  GgufWriter old;
  old.version = 1;
  EXPECT_THAT(gguf_error(old), HasSubstr("version 1; expected 2 or 3"));
  GgufWriter big_endian;
  big_endian.version = 3u << 24;
  EXPECT_THAT(gguf_error(big_endian), HasSubstr("big-endian byte order; expected little-endian"));
}

TEST(GgufFileTest, EveryShorterFileIsAnError) {
  const std::string bytes = GgufWriter()
                                .text("k", "value")
                                .texts("list", {"a", "b"})
                                .integers("ints", {1, 2, 3})
                                .tensor("t", kF32, {4}, std::string(16, 'x'))
                                .str();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(gguf_error(bytes.substr(0, size)), "no error") << size;
  }
}

TEST(GgufFileTest, CountsThatLieCostNoMemory) {
  const std::string many = number_bytes<uint64_t>(UINT64_MAX / 2);
  EXPECT_THAT(gguf_error("GGUF" + number_bytes<uint32_t>(3) + many + many),
              HasSubstr("the name of key 1 of 9223372036854775807"));
  EXPECT_THAT(gguf_error("GGUF" + number_bytes<uint32_t>(3) + many + number_bytes<uint64_t>(0)),
              HasSubstr("the name of tensor 1 of 9223372036854775807"));
  EXPECT_THAT(gguf_error(GgufWriter().array("a", 4, 1'000'000'000, "1234")),
              HasSubstr("the value of the key \"a\": it takes 4000000000 bytes"));
  EXPECT_THAT(gguf_error(GgufWriter().array("a", 10, UINT64_MAX, "1234")),
              HasSubstr("the value of the key \"a\""));
  EXPECT_THAT(gguf_error(GgufWriter().array("a", 8, 1'000'000'000, gguf_string("x"))),
              HasSubstr("the value of the key \"a\""));
  EXPECT_THAT(gguf_error(GgufWriter().entry("a", 8, number_bytes<uint64_t>(UINT64_MAX))),
              HasSubstr("it takes 18446744073709551615 bytes"));
}

TEST(GgufFileTest, RefusesBadKeys) {
  EXPECT_THAT(gguf_error(GgufWriter().integer("a", 1).integer("a", 2)),
              HasSubstr("the key \"a\" is given twice"));
  EXPECT_THAT(gguf_error(GgufWriter().integer("", 1)), HasSubstr("has 0 bytes; expected 1 to"));
  EXPECT_THAT(gguf_error(GgufWriter().entry("a", 13, "x")),
              HasSubstr("the key \"a\" is of the unknown type 13"));
  EXPECT_THAT(gguf_error(GgufWriter().array("a", 9, 1, std::string(12, '\0'))),
              HasSubstr("the key \"a\" holds an array of arrays"));
  EXPECT_THAT(gguf_error(GgufWriter().integer("general.alignment", 24)),
              HasSubstr("general.alignment is 24; expected a power of two"));
  EXPECT_THAT(gguf_error(GgufWriter().text("general.alignment", "32")),
              HasSubstr("general.alignment is a string value; expected an integer"));
}

TEST(GgufFileTest, RefusesBadTensors) {
  EXPECT_THAT(
      gguf_error(GgufWriter().tensor("t", kF32, {1}, "abcd").tensor("t", kF32, {1}, "abcd")),
      HasSubstr("the tensor \"t\" is given twice"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", 4, {1}, "abcd")),
              HasSubstr("the tensor \"t\" is of the unknown type 4"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {1}, "abcd").tensor("q", 15, {1, 40}, "x")),
              HasSubstr("rows of 40 values; expected a multiple of 256, the block of Q8_K"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kQ8_0, {1, 40}, std::string(99, 'x'))),
              HasSubstr("rows of 40 values; expected a multiple of 32, the block of Q8_0"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {}, "abcd")),
              HasSubstr("has 0 dimensions; expected 1 to 4"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {1, 1, 1, 1, 1}, "abcd")),
              HasSubstr("has 5 dimensions; expected 1 to 4"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {2, 0}, "abcd")),
              HasSubstr("has 0 as a dimension"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {1ull << 40, 1ull << 40}, "abcd")),
              HasSubstr("which no file can hold"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor("t", kF32, {UINT64_MAX}, "abcd")),
              HasSubstr("as a dimension"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor_at("t", kF32, {1}, 3).data("abcdefgh")),
              HasSubstr("begins at byte 3 of the data; expected a multiple of the alignment, 32"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor_at("t", kF32, {1}, 1ull << 63).data("abcdefgh")),
              HasSubstr("but the file has only 8 bytes of data"));
  EXPECT_THAT(gguf_error(GgufWriter().tensor_at("t", kF32, {3}, 0).data("abcdefgh")),
              HasSubstr("has 12 bytes from byte 0 of the data on"));
  EXPECT_THAT(gguf_error(GgufWriter()
                             .tensor_at("t", kF32, {9}, 0)
                             .tensor_at("u", kF32, {1}, 32)
                             .data(std::string(64, 'x'))),
              HasSubstr("the tensor \"u\" overlaps the tensor \"t\""));
}

TEST(GgufFileTest, KeysOfOtherTypesAreErrors) {
  const std::string bytes = GgufWriter()
                                .text("text", "x")
                                .integer("n", 70)
                                .number("nan", std::numeric_limits<float>::quiet_NaN())
                                .entry("huge", 10, number_bytes<uint64_t>(UINT64_MAX))
                                .integers("ints", {1, 90})
                                .str();
  const GgufFile file = parse_gguf(bytes);
  EXPECT_EQ(key_error(file, [](const auto& f) { f.integer("text", 0, 1); }),
            "m.gguf: the key text is a string value; expected an integer.");
  EXPECT_EQ(key_error(file, [](const auto& f) { f.integer("n", 0, 5); }),
            "m.gguf: the key n is 70; expected an integer from 0 to 5.");
  EXPECT_EQ(key_error(file, [](const auto& f) { f.required_integer("x", 0, 5); }),
            "m.gguf: the key x is missing; expected an integer from 0 to 5.");
  EXPECT_THAT(key_error(file, [](const auto& f) { f.integer("huge", 0, 5); }),
              HasSubstr("is more than 63 bits hold"));
  EXPECT_THAT(key_error(file, [](const auto& f) { f.number("nan", 0, 5); }),
              HasSubstr("is nan; expected a number from 0 to 5"));
  EXPECT_THAT(key_error(file, [](const auto& f) { f.integers("ints", 0, 5); }),
              HasSubstr("holds 90 at index 1; expected integers from 0 to 5"));
  EXPECT_THAT(key_error(file, [](const auto& f) { f.strings("ints"); }),
              HasSubstr("is an array of 2 int32 values; expected strings"));
  EXPECT_THAT(key_error(file, [](const auto& f) { f.string("ints"); }),
              HasSubstr("is an array of 2 int32 values; expected one value"));
  EXPECT_THAT(key_error(file, [](const auto& f) { f.floats("n"); }),
              AllOf(HasSubstr("a uint32 value"), HasSubstr("expected an array")));
}

}  // namespace
}  // namespace quire
