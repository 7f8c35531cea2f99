#include "loader/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "quire/error.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
  return file + rest;
}

// A file with this header and `data_bytes` bytes of data.
std::string file_of(const std::string& header, size_t data_bytes = 0) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

std::span<const std::byte> view_of_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string error_of_file(const std::string& file) {
  // A copy of exactly this size, so that a sanitizer sees a read past the end.
  const std::vector<char> copy(file.begin(), file.end());
  try {
    parse_safetensors(std::as_bytes(std::span(copy)), "m.safetensors");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string header_error(const std::string& header, size_t data_bytes = 8) {
  return error_of_file(file_of(header, data_bytes));
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = file_of(R"({"__metadata__":{"format":"pt","x":"y"},)"
                                   R"("b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
                                   R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                                   R"("e":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]},)"
                                   R"("f":{"dtype":"F4","shape":[2,2],"data_offsets":[8,10]}}   )",
                                   10);
  const auto tensors = parse_safetensors(view_of_bytes(file), "m.safetensors");
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].file, "m.safetensors");
  EXPECT_EQ(tensors[0].describe(), "[2, 1] BF16");
  EXPECT_EQ(tensors[0].bytes, 4u);
  EXPECT_EQ(tensors[1].name, "e");
  EXPECT_EQ(tensors[1].bytes, 0u);
  EXPECT_EQ(tensors[2].name, "b");
  EXPECT_EQ(tensors[2].describe(), "[] F32");
  EXPECT_EQ(reinterpret_cast<const char*>(tensors[2].data), file.data() + file.size() - 6);
  EXPECT_THAT(tensors[3].shape, ElementsAre(2, 2));
}

TEST(SafetensorsTest, AnEmptyHeaderHasNoTensors) {
  const std::string file = file_of("{}");
  EXPECT_TRUE(parse_safetensors(view_of_bytes(file), "m").empty());
}

TEST(SafetensorsTest, ChecksTheHeadersLength) {
  EXPECT_THAT(error_of_file(""), HasSubstr("m.safetensors: the file has 0 bytes"));
  EXPECT_THAT(error_of_file("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(error_of_file(with_length(3, "{}")), HasSubstr("claims 3 bytes, but only 2 follow"));
  EXPECT_THAT(error_of_file(with_length(UINT64_MAX, "{}")), HasSubstr("more than the 100000000"));
  EXPECT_THAT(error_of_file(with_length(100'000'001, "{}")), HasSubstr("more than the 100000000"));
  EXPECT_THAT(error_of_file(with_length(0, "{}")), HasSubstr("not valid JSON"));
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNoneOfTheFormat) {
  EXPECT_THAT(header_error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("[]"), HasSubstr("the header is a list"));
  EXPECT_THAT(header_error("7"), HasSubstr("the header is a number"));
  EXPECT_THAT(header_error("\"s\""), HasSubstr("the header is a string"));
  EXPECT_THAT(header_error("null"), HasSubstr("the header is null"));
  EXPECT_THAT(header_error(R"({"a":1})"), HasSubstr("a number for \"a\""));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__ has a number"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":{}}})"),
              HasSubstr("__metadata__ has an object"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","what":1}})"),
              HasSubstr("unknown field \"what\""));
  EXPECT_THAT(header_error(R"({"a":{"dtype":4}})"),
              HasSubstr("a number in dtype; expected a string"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("its dtype twice"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[1],"shape":[1]}})"), HasSubstr("its shape twice"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[[1]]}})"), HasSubstr("a list in shape"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[-1]}})"), HasSubstr("a negative number in shape"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[1.5]}})"), HasSubstr("no integer of 64 bits"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[99999999999999999999]}})"),
              HasSubstr("no integer of 64 bits"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})"),
              HasSubstr("more than 8 numbers"));
  EXPECT_THAT(header_error(R"({"a":{"data_offsets":[0,1,2]}})"), HasSubstr("more than 2 numbers"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("has no dtype"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"),
              HasSubstr("has no shape"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})"),
              HasSubstr("no data_offsets of two numbers"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("unknown dtype \"F33\""));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("tensor \"a\" is given twice"));
}

TEST(SafetensorsTest, StopsAtDeepNestingWithoutReadingIt) {
  EXPECT_THAT(header_error(std::string(1'000'000, '[')), HasSubstr("the header is a list"));
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
  EXPECT_THAT(header_error(nested), HasSubstr("unknown field"));
}

TEST(SafetensorsTest, ChecksWhatATensorSaysOfItsSize) {
  const auto error = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return header_error(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
                        R"(,"data_offsets":)" + offsets + "}}");
  };
  EXPECT_EQ(error("F32", "[2]", "[0,8]"), "no error");
  EXPECT_THAT(error("F32", "[3]", "[0,8]"),
              HasSubstr("has 8 bytes of data, but [3] F32 takes 12 bytes"));
  EXPECT_THAT(error("F16", "[2]", "[0,8]"), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(error("F32", "[]", "[0,8]"), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(error("F4", "[3]", "[0,8]"), HasSubstr("no such number of bytes"));
  EXPECT_THAT(error("F32", "[3]", "[0,12]"),
              HasSubstr("ends at byte 12 of the data, but the file has only 8"));
  EXPECT_THAT(error("F32", "[2]", "[8,0]"), HasSubstr("end before they begin"));
  EXPECT_THAT(error("F32", "[0]", "[18446744073709551615,18446744073709551615]"),
              HasSubstr("only 8 bytes"));
  // Products that are 8 or 0 when they wrap around.
  EXPECT_THAT(error("F32", "[4611686018427387906]", "[0,8]"), HasSubstr("no such number of bytes"));
  EXPECT_THAT(error("F32", "[4294967296,4294967296]", "[0,0]"),
              HasSubstr("no such number of bytes"));
  EXPECT_THAT(error("F32", "[18446744073709551615,0]", "[0,0]"), HasSubstr("63 bits"));
}

TEST(SafetensorsTest, DataBelongsToExactlyOneTensor) {
  const auto error = [](const std::string& a, const std::string& b) {
    return header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                        R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}");
  };
  EXPECT_EQ(error("[4,8]", "[0,4]"), "no error");
  EXPECT_THAT(error("[0,4]", "[2,6]"), HasSubstr("tensor \"b\" overlaps"));
  EXPECT_THAT(error("[0,4]", "[0,4]"), HasSubstr("overlaps"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              HasSubstr("4 bytes before tensor \"a\" belong to no tensor"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})"),
              HasSubstr("the last 4 bytes"));
  EXPECT_THAT(header_error("{}"), HasSubstr("the last 8 bytes"));
}

TEST(SafetensorsTest, ShowsHostileNamesSafely) {
  const std::string name = std::string(100'000, 'n');
  const std::string message = header_error("{\"" + name + "\":1}");
  EXPECT_LT(message.size(), 400u);
  EXPECT_THAT(header_error("{\"\\u001b[2J\":1}"), HasSubstr("\\u001b[2J"));
}

}  // namespace
}  // namespace quire
