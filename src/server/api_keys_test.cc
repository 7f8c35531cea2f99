#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire::server {
namespace {

TEST(ApiKeys, LetsEverybodyInWithoutKeys) {
  const ApiKeys keys({});
  EXPECT_FALSE(keys.required());
  EXPECT_EQ(keys.owner_of(std::nullopt), "");
  EXPECT_EQ(keys.owner_of("Bearer anything"), "");
}

TEST(ApiKeys, KnowsItsKeysOnly) {
  const ApiKeys keys({"first", "second"});
  const auto first = keys.owner_of("Bearer first");
  const auto second = keys.owner_of("bearer  second ");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->size(), 64u);
  EXPECT_NE(*first, *second);
  for (const char* refused : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstt",
                              "Basic first", "first", "Bearer first second"}) {
    EXPECT_FALSE(keys.owner_of(refused)) << refused;
  }
  EXPECT_FALSE(keys.owner_of(std::nullopt));
  EXPECT_THROW(ApiKeys({""}), Error);
}

TEST(ApiKeys, ReadsThemFromAFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "keys.txt";
  std::ofstream(path) << "# people\n alpha \r\n\nbeta";
  EXPECT_EQ(read_api_key_file(path.string()), (std::vector<std::string>{"alpha", "beta"}));
  std::ofstream(path) << "# none\n";
  EXPECT_THROW(read_api_key_file(path.string()), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(read_api_key_file(path.string()), Error);
}

}  // namespace
}  // namespace quire::server
