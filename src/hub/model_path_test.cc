#include "hub/model_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                      "XDG_CACHE_HOME", "HOME"};

class ModelPathTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      saved_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
    set("HOME", root_ / "home");
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }

  static void set(const char* name, const fs::path& value) { ::setenv(name, value.c_str(), 1); }

  static void write(const fs::path& path, const std::string& text = "{}") {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  // A repository in the cache as huggingface_hub leaves it: files are links into blobs/.
  static fs::path cache_model(const fs::path& cache, const std::string& folder) {
    const fs::path repository = cache / folder;
    write(repository / "refs" / "main", "abc123");
    write(repository / "blobs" / "f00");
    const fs::path snapshot = repository / "snapshots" / "abc123";
    fs::create_directories(snapshot);
    fs::create_symlink("../../blobs/f00", snapshot / "config.json");
    return snapshot;
  }

  static std::string error_of(const std::string& model) {
    try {
      resolve_model(model);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::vector<std::pair<std::string, std::optional<std::string>>> saved_;
};

TEST_F(ModelPathTest, TheCacheIsWhereHuggingFacePutsIt) {
  EXPECT_EQ(hub_cache_folder(), root_ / "home" / ".cache" / "huggingface" / "hub");
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(hub_cache_folder(), "/xdg/huggingface/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(hub_cache_folder(), root_ / "home" / "hf" / "hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(hub_cache_folder(), "/old");
  set("HF_HUB_CACHE", "/new");
  EXPECT_EQ(hub_cache_folder(), "/new");
  set("HF_HUB_CACHE", "");
  EXPECT_EQ(hub_cache_folder(), "/old");
}

TEST_F(ModelPathTest, AFolderThatExistsIsTheModel) {
  write(root_ / "model" / "config.json");
  EXPECT_EQ(resolve_model((root_ / "model").string()), root_ / "model");
  write(root_ / "words" / "tokenizer.json");
  EXPECT_EQ(resolve_model((root_ / "words").string()), root_ / "words");
}

TEST_F(ModelPathTest, FindsARepositoryInTheCache) {
  set("HF_HUB_CACHE", root_ / "cache");
  const fs::path snapshot = cache_model(root_ / "cache", "models--Qwen--Qwen3-0.6B");
  EXPECT_EQ(resolve_model("Qwen/Qwen3-0.6B"), snapshot);
  const fs::path other = cache_model(root_ / "cache", "models--gpt2.x");
  EXPECT_EQ(resolve_model("gpt2.x"), other);
}

TEST_F(ModelPathTest, SaysWhatWasLookedForAndWhere) {
  set("HF_HUB_CACHE", root_ / "cache");
  EXPECT_THAT(
      error_of("org/name"),
      AllOf(HasSubstr("org/name: there is no such folder in " + fs::current_path().string()),
            HasSubstr((root_ / "cache" / "models--org--name").string())));
  EXPECT_THAT(error_of("/no/such/folder"), HasSubstr("/no/such/folder: there is no such folder."));
  EXPECT_THAT(error_of("../../../no"), HasSubstr("no such folder."));
  EXPECT_THAT(error_of("a/.."), HasSubstr("no such folder"));
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  EXPECT_THAT(error_of(std::string("a\0b", 3)), HasSubstr("zero byte"));
  EXPECT_THAT(error_of(std::string(100'000, 'a')), HasSubstr("no such folder"));
  write(root_ / "file");
  EXPECT_THAT(error_of((root_ / "file").string()), HasSubstr("this is a file"));
  fs::create_directories(root_ / "empty");
  EXPECT_THAT(error_of((root_ / "empty").string()),
              HasSubstr("holds no model; expected a config.json, a tokenizer.json or a GGUF file"));
}

TEST_F(ModelPathTest, SaysWhatIsWrongWithTheCache) {
  set("HF_HUB_CACHE", root_ / "cache");
  const fs::path repository = root_ / "cache" / "models--a--b";
  const fs::path snapshot = cache_model(root_ / "cache", "models--a--b");
  write(repository / "refs" / "main", "abc123\n");
  EXPECT_EQ(resolve_model("a/b"), snapshot);
  write(repository / "refs" / "main", "../../secret");
  EXPECT_THAT(error_of("a/b"), HasSubstr("expected a revision"));
  write(repository / "refs" / "main", std::string(5000, 'a'));
  EXPECT_THAT(error_of("a/b"), HasSubstr("5000 bytes"));
  write(repository / "refs" / "main", "def");
  EXPECT_THAT(error_of("a/b"), HasSubstr("download is incomplete"));
  fs::remove(repository / "refs" / "main");
  EXPECT_THAT(error_of("a/b"), AllOf(HasSubstr("refs/main"), HasSubstr("abc123")));
}

TEST_F(ModelPathTest, TheInstalledModelComesBeforeTheSourceTrees) {
  const fs::path source = root_ / "source";
  write(source / "models" / "lexicon" / "config.json");
  EXPECT_EQ(hub_internal::find_bundled_model(root_ / "usr", source), source / "models" / "lexicon");
  const fs::path installed = root_ / "usr" / "share" / "quire" / "models" / "lexicon";
  write(installed / "config.json");
  EXPECT_EQ(hub_internal::find_bundled_model(root_ / "usr", source), installed);
  try {
    hub_internal::find_bundled_model(root_ / "opt", root_ / "gone");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr((root_ / "opt/share/quire/models/lexicon").string()),
                                    HasSubstr((root_ / "gone/models/lexicon").string())));
  }
}

TEST_F(ModelPathTest, FindsGgufFiles) {
  const fs::path folder = root_ / "folder";
  write(folder / "m-Q4_K_M.gguf");
  EXPECT_EQ(resolve_model((folder / "m-Q4_K_M.gguf").string()), folder / "m-Q4_K_M.gguf");
  EXPECT_EQ(resolve_model(folder.string()), folder / "m-Q4_K_M.gguf");
  write(folder / "Q8_0" / "m-Q8_0-00001-of-00002.gguf");
  write(folder / "Q8_0" / "m-Q8_0-00002-of-00002.gguf");
  EXPECT_EQ(resolve_model(folder.string() + ":q8_0"),
            folder / "Q8_0" / "m-Q8_0-00001-of-00002.gguf");
  EXPECT_THAT(error_of(folder.string()), HasSubstr("there are 2 GGUF models: Q8_0/m-Q8_0-00001"));
  EXPECT_THAT(error_of(folder.string() + ":Q6_K"), HasSubstr("no GGUF file's name ends in Q6_K"));
  write(folder / "config.json");
  EXPECT_EQ(resolve_model(folder.string()), folder);
  EXPECT_EQ(resolve_model(folder.string() + ":Q4_K_M"), folder / "m-Q4_K_M.gguf");
  EXPECT_THAT(error_of((root_ / "no.gguf").string()), HasSubstr("no.gguf: there is no such file."));
}

TEST_F(ModelPathTest, FindsGgufFilesInTheCache) {
  const fs::path snapshot = cache_model(hub_cache_folder(), "models--org--name");
  fs::create_symlink("../../blobs/f00", snapshot / "m.Q8_0.gguf");
  EXPECT_EQ(resolve_model("org/name:Q8_0"), snapshot / "m.Q8_0.gguf");
  EXPECT_EQ(resolve_model("org/name"), snapshot);
  EXPECT_THAT(error_of("org/name:Q4_0"), HasSubstr("org/name: no GGUF file's name ends in Q4_0"));
  EXPECT_THAT(error_of("org/other:Q4_0"), HasSubstr("run 'quire pull org/other:Q4_0'"));
}

}  // namespace
}  // namespace quire
