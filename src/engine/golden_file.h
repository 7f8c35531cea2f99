#pragma once
// The results that transformers computes with the checkpoints of tests/golden/models.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/test_models.h"

namespace quire::engine_test {

// A checkpoint's golden.json, as scripts/make_model_goldens.py writes it.
inline nlohmann::json load_golden(const std::string& name) {
  std::ifstream file(golden_models() / name / "golden.json");
  return nlohmann::json::parse(file);
}

}  // namespace quire::engine_test
