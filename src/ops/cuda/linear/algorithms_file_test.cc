#include "ops/cuda/linear/algorithms_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire::ops {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kEntry =
    R"({"compute_capability": 90, "multiprocessors": 132, "dtype": "bfloat16",
        "out_dtype": "float32", "n": 4096, "k": 1024, "rows": 512,
        "algorithm": {"id": 66, "tile": 23, "stages": 36, "split_k": 2, "reduction": 2,
                      "swizzle": 1, "custom": 4294967295, "inner_shape": 3,
                      "cluster_shape": 65535}})";

const LinearAlgorithmEntry kParsed = {
    {{90, 132}, DType::kBFloat16, DType::kFloat32, 4096, 1024, 512},
    LinearAlgorithm{66, 23, 36, 2, 2, 1, 4294967295, 3, 65535}};

std::string file_of(const std::string& entries) {
  return R"({"made_with": "a test", "linear_algorithms": [)" + entries + "]}";
}

// kEntry with the first `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string entry = kEntry;
  entry.replace(entry.find(from), from.size(), to);
  return file_of(entry);
}

auto refuses(const std::string& text, const std::string& where, const std::string& expected) {
  EXPECT_THAT(
      [&] { parse_linear_algorithms(text, "tuned.json"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("tuned.json"), HasSubstr(where), HasSubstr(expected))))
      << text;
}

TEST(LinearAlgorithmsFile, IsReadFieldByField) {
  EXPECT_THAT(parse_linear_algorithms(file_of(kEntry), "tuned.json"),
              testing::ElementsAre(kParsed));
  EXPECT_THAT(parse_linear_algorithms(R"({"linear_algorithms": []})", "tuned.json"),
              testing::IsEmpty());
}

TEST(LinearAlgorithmsFile, ReadsWhatItWrites) {
  std::vector<LinearAlgorithmEntry> entries = {kParsed, kParsed};
  entries[1].shape.rows = 96;
  entries[1].algorithm = std::nullopt;
  const std::string text = linear_algorithms_text(entries, "quire \"0.1\" on\nNVIDIA \xff");
  EXPECT_EQ(parse_linear_algorithms(text, "tuned.json"), entries);
  EXPECT_EQ(parse_linear_algorithms(linear_algorithms_text({}, ""), "tuned.json"),
            std::vector<LinearAlgorithmEntry>());
}

TEST(LinearAlgorithmsFile, SaysWhatIsWrongAndWhere) {
  refuses("", "not valid JSON", "");
  refuses("[]", "is []", "expected an object");
  refuses("{}", "has no field linear_algorithms", "");
  refuses(R"({"linear_algorithms": 3})", "linear_algorithms is 3", "expected a list");
  refuses(R"({"linear_algorithms": [], "more": 1})", "\"more\"", "not known");
  refuses(file_of("[]"), "entry 1 of linear_algorithms is []", "expected an object");
  refuses(file_of(std::string(kEntry) + "," + kEntry), "entry 2", "as one before");
  refuses(changed("\"n\"", "\"m\""), "entry 1 of linear_algorithms has a field \"m\"", "not known");
  refuses(changed("\"k\": 1024,", ""), "entry 1", "has no field k");
  refuses(changed("4096", "0"), "the field n is 0", "from 1 to 2147483647");
  refuses(changed("4096", "-1"), "the field n is -1", "from 1 to");
  refuses(changed("4096", "1e3"), "the field n is 1000.0", "an integer");
  refuses(changed("4096", "2147483648"), "the field n is 2147483648", "to 2147483647");
  refuses(changed("512", "99999999999999999999"), "the field rows is 1e+20", "to 2147483647");
  refuses(changed("132", "\"132\""), "the field multiprocessors is \"132\"", "an integer");
  refuses(changed("bfloat16", "int8"), "the field dtype is \"int8\"", "\"bfloat16\"");
  refuses(changed("\"out_dtype\": \"float32\"", "\"out_dtype\": \"float16\""),
          "the field out_dtype is \"float16\"", "that of dtype");
  refuses(changed("\"id\": 66, ", ""), "algorithm", "has no field id");
  refuses(changed("\"id\": 66", "\"id\": -1"), "algorithm: the field id is -1", "from 0 to");
  refuses(changed("65535", "65536"), "the field cluster_shape is 65536", "to 65535");
  refuses(changed("4294967295", "4294967296"), "the field custom is 4294967296", "to 4294967295");
  refuses(changed("\"reduction\": 2", "\"reduction\": 1"), "the field reduction is 1",
          "0 (none) or 2");
  refuses(file_of(kEntry) + file_of(kEntry), "not valid JSON", "");
}

TEST(LinearAlgorithmsFile, NamesAFileThatIsNotThere) {
  EXPECT_THAT([] { read_linear_algorithms("/nowhere/tuned.json"); },
              ThrowsMessage<Error>(HasSubstr("/nowhere/tuned.json")));
}

}  // namespace
}  // namespace quire::ops
