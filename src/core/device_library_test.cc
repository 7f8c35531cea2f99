#include "core/device_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "base/temporary_folder_test_util.h"
#include "quire/version.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

const std::string kModules = QUIRE_TEST_MODULES;

class LoadCudaLibrary : public ::testing::Test {
 protected:
  LoadCudaLibrary() {
    const char* value = std::getenv(kVariable);
    if (value != nullptr) before_ = value;
  }
  ~LoadCudaLibrary() override {
    before_ ? ::setenv(kVariable, before_->c_str(), 1) : ::unsetenv(kVariable);
  }

  // Why `file` cannot be used.
  static std::string explanation(const std::string& file) {
    ::setenv(kVariable, file.c_str(), 1);
    const LoadedLibrary loaded = load_cuda_library();
    EXPECT_EQ(loaded.library, nullptr);
    return loaded.explanation;
  }

 private:
  static constexpr const char* kVariable = "QUIRE_CUDA_LIBRARY";
  std::optional<std::string> before_;
};

TEST_F(LoadCudaLibrary, Empty) {
  EXPECT_EQ(explanation(""), "QUIRE_CUDA_LIBRARY is empty, which turns the CUDA backend off.");
}

TEST_F(LoadCudaLibrary, NoSuchFile) {
  EXPECT_EQ(explanation("/nowhere/lib.so"),
            "QUIRE_CUDA_LIBRARY is /nowhere/lib.so, and there is no such file.");
}

TEST_F(LoadCudaLibrary, NoLibrary) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "no_library.so";
  std::ofstream(file) << std::string(1000, 'x');
  EXPECT_EQ(explanation(file), file + " cannot be loaded: invalid ELF header.");
}

TEST_F(LoadCudaLibrary, OneThatNeedsAMissingLibrary) {
  EXPECT_THAT(explanation(kModules + "/needs_cublas.so"),
              AllOf(StartsWith(kModules + "/needs_cublas.so cannot be loaded: libcublasLt.so.0: "),
                    EndsWith(". Install cuBLAS 13, which is NVIDIA's package libcublas-13-0.")));
}

TEST_F(LoadCudaLibrary, NotQuires) {
  EXPECT_EQ(explanation(kModules + "/no_entry.so"),
            kModules +
                "/no_entry.so is no library of quire's: it has no function "
                "quire_cuda_library.");
}

TEST_F(LoadCudaLibrary, OfAnotherVersion) {
  ::unsetenv("QUIRE_TEST_VERSION");
  EXPECT_EQ(explanation(kModules + "/other_version.so"),
            kModules + "/other_version.so was not made for this quire, " +
                device_library_version() +
                "; install quire and quire-cuda of one version, or build both from the same "
                "sources.");
  const char* asked_for = std::getenv("QUIRE_TEST_VERSION");
  ASSERT_NE(asked_for, nullptr);
  EXPECT_EQ(asked_for, device_library_version());
}

TEST_F(LoadCudaLibrary, ARelativePathIsOneFromTheCurrentFolder) {
  const std::string relative =
      std::filesystem::relative(kModules + "/no_entry.so").lexically_normal().string();
  EXPECT_THAT(explanation(relative), HasSubstr("/no_entry.so is no library of quire's"));
}

TEST(DeviceLibraryVersion, IsQuiresAndTheInterfaces) {
  EXPECT_THAT(device_library_version(), StartsWith(std::string(version()) + "+"));
  EXPECT_THAT(device_library_version(), MatchesRegex(".*\\+[0-9a-f]{12}"));
}

}  // namespace
}  // namespace quire
