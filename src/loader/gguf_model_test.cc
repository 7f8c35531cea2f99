#include "loader/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder_test_util.h"
#include "loader/gguf_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class GgufModelTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const GgufWriter& writer) const {
    std::ofstream(folder_ / name, std::ios::binary) << writer.str();
    return folder_ / name;
  }
  std::string error_of(const std::string& name) const {
    try {
      GgufModel::open(folder_ / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  // Part `index` of `count`, with one tensor.
  static GgufWriter part(uint32_t index, uint32_t count, const std::string& tensor) {
    GgufWriter writer;
    writer.integer("split.no", index).integer("split.count", count);
    return writer.tensor(tensor, 0, {1}, "abcd");
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(GgufModelTest, OpensOneFile) {
  write("m.gguf", GgufWriter().text("k", "v").tensor("t", 0, {1}, "abcd"));
  const GgufModel model = GgufModel::open(folder_ / "m.gguf");
  EXPECT_EQ(model.header().string("k"), "v");
  EXPECT_EQ(model.parts().size(), 1u);
}

TEST_F(GgufModelTest, AnyPartOpensAllOfThem) {
  write("m-00001-of-00003.gguf", GgufWriter()
                                     .integer("split.no", 0)
                                     .integer("split.count", 3)
                                     .integer("split.tensors.count", 2)
                                     .text("k", "v"));
  write("m-00002-of-00003.gguf", part(1, 3, "a"));
  write("m-00003-of-00003.gguf", part(2, 3, "b"));
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const GgufModel model = GgufModel::open(folder_ / name);
    EXPECT_EQ(model.header().string("k"), "v");
    ASSERT_EQ(model.parts().size(), 3u);
    EXPECT_EQ(model.parts()[2].file.tensors()[0].name, "b");
  }
}

TEST_F(GgufModelTest, RefusesPartsThatDoNotFit) {
  EXPECT_THAT(error_of("none.gguf"), HasSubstr("none.gguf: there is no such file."));
  write("m-00001-of-00002.gguf", part(0, 2, "a"));
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"),
              HasSubstr("m-00002-of-00002.gguf: there is no such file; the model is split into 2"));
  write("m-00002-of-00002.gguf", part(0, 2, "b"));
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"),
              HasSubstr("the key split.no is 0; expected 1, as the file's name says"));
  write("m-00002-of-00002.gguf", part(1, 3, "b"));
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"), HasSubstr("the key split.count is 3, but"));
  write("m-00002-of-00002.gguf", GgufWriter());
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"),
              HasSubstr("the key split.count is missing; expected 2"));
  write("m-00002-of-00002.gguf", part(1, 2, "a"));
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"), HasSubstr("the tensor \"a\" is in"));
  write("m-00002-of-00002.gguf", part(1, 2, "b"));
  EXPECT_EQ(error_of("m-00001-of-00002.gguf"), "no error");
  write("m-00001-of-00002.gguf", part(0, 2, "a").integer("split.tensors.count", 7));
  EXPECT_THAT(error_of("m-00001-of-00002.gguf"),
              HasSubstr("split.tensors.count is 7, but the 2 parts have 2 tensors"));
  write("renamed.gguf", part(0, 2, "a"));
  EXPECT_THAT(error_of("renamed.gguf"), HasSubstr("-00001-of-00002.gguf, as it was split"));
}

TEST_F(GgufModelTest, PartsAreTheNamesThatThePatternGives) {
  EXPECT_THAT(gguf_parts("x/m.gguf"), ElementsAre("x/m.gguf"));
  EXPECT_THAT(gguf_parts("x/m-00002-of-00002.gguf"),
              ElementsAre("x/m-00001-of-00002.gguf", "x/m-00002-of-00002.gguf"));
  for (const char* name : {"m-00003-of-00002.gguf", "m-0000x-of-00002.gguf", "-00001-of-00002.gguf",
                           "m-00001-of-99999.gguf", "m_00001-of-00002.gguf"}) {
    EXPECT_THAT(gguf_parts(name), ElementsAre(name));
  }
}

TEST_F(GgufModelTest, AFolderIsNoGgufFile) {
  fs::create_directories(folder_ / "folder.gguf");
  EXPECT_FALSE(is_gguf_path(folder_ / "folder.gguf"));
  EXPECT_TRUE(is_gguf_path("m.gguf"));
  EXPECT_FALSE(is_gguf_path("m.bin"));
}

}  // namespace
}  // namespace quire
