#pragma once
// The tiny checkpoints of tests/golden/models, for tests of the engine.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace quire::engine_test {

inline std::filesystem::path golden_models() {
  return std::filesystem::path(QUIRE_SOURCE_DIR) / "tests" / "golden" / "models";
}

inline std::vector<std::string> golden_cases() {
  std::vector<std::string> cases;
  for (const auto& entry : std::filesystem::directory_iterator(golden_models())) {
    if (std::filesystem::exists(entry.path() / "golden.json")) {
      cases.push_back(entry.path().filename().string());
    }
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace quire::engine_test
