// JSON of random schemas, at any temperature and cut at random limits: every answer parses and is
// what its schema describes. QUIRE_JSON_CASES gives it more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/constrained_requests.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

class SchemaMaker {
 public:
  explicit SchemaMaker(std::mt19937& random) : random_(random) {}

  json schema(int depth) {
    switch (draw(depth > 0 ? 0 : 3, 9)) {
      case 0:
        return object(depth);
      case 1:
        return array(depth);
      case 2:
        return {{"anyOf", {schema(depth - 1), schema(depth - 1)}}};
      case 3:
        return {{"type", "string"}, {"maxLength", draw(1, 30)}};
      case 4:
        return {{"type", "string"}, {"pattern", "^[a-z]{1,4}-[0-9]+$"}};
      case 5:
        return {{"enum", {"red", "green", 7, json(nullptr), json::array({1, "x"})}}};
      case 6:
        return {{"type", "integer"}, {"minimum", draw(-50, 0)}, {"maximum", draw(1, 5000)}};
      case 7:
        return {{"type", "number"}, {"minimum", -1e6}, {"maximum", 1e6}};
      case 8:
        return {{"type", {"boolean", "null"}}};
      default:
        return {{"const", {{"kind", "fixed"}}}};
    }
  }

 private:
  json object(int depth) {
    json properties = json::object();
    json required = json::array();
    for (int i = draw(0, 4); i > 0; --i) {
      const std::string name = "p" + std::to_string(draw(0, 20));
      properties[name] = schema(depth - 1);
      if (draw(0, 1) == 0 && std::find(required.begin(), required.end(), name) == required.end()) {
        required.push_back(name);
      }
    }
    json result = {{"type", "object"}, {"properties", properties}, {"required", required}};
    if (draw(0, 2) > 0) result["additionalProperties"] = false;
    return result;
  }
  json array(int depth) {
    const int least = draw(0, 2);
    return {{"type", "array"},
            {"items", schema(depth - 1)},
            {"minItems", least},
            {"maxItems", least + draw(0, 4)}};
  }
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937& random_;
};

int num_cases() {
  const char* given = std::getenv("QUIRE_JSON_CASES");
  return given == nullptr ? 40 : std::atoi(given);
}

TEST(StructuredOutputJson, AnswersOfRandomSchemasAreValidWhereverTheyAreCut) {
  std::mt19937 random(31);
  SchemaMaker maker(random);
  LLMEngine engine(lexicon_config());
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int num_refused = 0;
  int num_steered = 0;
  for (int left = num_cases(); left > 0;) {
    std::vector<ConstrainedRequest> requests;
    for (int i = 0; i < 40 && left > 0; ++i, --left) {
      ConstrainedRequest request;
      request.params.structured_output = json_schema(maker.schema(3).dump());
      request.params.temperature = draw(0, 4) * 0.5;
      request.params.max_tokens = draw(1, 4) == 1 ? draw(1, 150) : draw(1, 40);
      request.params.seed = static_cast<uint64_t>(i);
      try {
        engine.add_request("try", request.prompt, request.params);
        engine.abort("try");
        while (!engine.is_finished()) engine.step();
        requests.push_back(std::move(request));
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("an answer takes at least"));
        ++num_refused;
      }
    }
    const auto outputs = answers_of(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_matches(requests[i], outputs[i]);
      EXPECT_TRUE(json::accept(outputs[i].outputs[0].text)) << outputs[i].outputs[0].text;
      num_steered += outputs[i].outputs[0].steered_to_end ? 1 : 0;
    }
  }
  EXPECT_GT(num_steered, num_cases() / 10);
  EXPECT_LT(num_refused, num_cases());
}

}  // namespace
}  // namespace quire
