#include "server/api/openapi.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <string>

#include "quire/sampling_limits.h"
#include "server/api/api_schemas.h"
#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

// Every $ref of a document, wherever it is.
void collect_references(const Json& value, std::set<std::string>& names) {
  if (!value.is_structured()) return;
  for (const auto& [name, part] : value.items()) {
    if (value.is_object() && name == "$ref") names.insert(part.get<std::string>());
    collect_references(part, names);
  }
}

TEST(OpenApi, DescribesEveryEndpoint) {
  const Json document = Json::parse(test_api().document());
  EXPECT_EQ(document["openapi"], "3.1.0");
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{model}", "/tokenize",
        "/detokenize", "/health", "/ready", "/version", "/metrics", "/v1/requests/{request_id}",
        "/v1/requests/{request_id}/events", "/openapi.json"}) {
    EXPECT_TRUE(document["paths"].contains(path)) << path;
  }
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  const Json document = Json::parse(test_api().document());
  std::set<std::string> names;
  collect_references(document, names);
  EXPECT_GT(names.size(), 10u);
  for (const std::string& name : names) {
    EXPECT_TRUE(document.contains(Json::json_pointer(name.substr(1)))) << name;
  }
}

TEST(OpenApi, HasTheModelsBounds) {
  const Json document = Json::parse(test_api().document());
  const Json& schemas = document["components"]["schemas"];
  EXPECT_EQ(schemas["TokenId"]["maximum"], 8191);
  EXPECT_EQ(schemas["PromptTokenIds"]["maxItems"], 2047);
  EXPECT_EQ(schemas["CompletionRequest"]["properties"]["model"]["enum"].dump(),
            R"(["lexicon","gpt-4",null])");
  EXPECT_EQ(test_api().document().find("\"@"), std::string::npos);  // every bound is filled in
}

TEST(OpenApi, EveryLimitOfSamplingFieldsIsApplied) {
  const int64_t context = test_model().max_model_len - 1;
  for (const SamplingLimit& limit : kSamplingLimits) {
    const std::string field(limit.field);
    const auto body = [&](double value) {
      Json json = std::floor(value) == value ? Json(static_cast<int64_t>(value)) : Json(value);
      if (field == "logit_bias") json = Json{{"7", json}};
      return Json{{field, std::move(json)}}.dump();
    };
    const auto refuses = [&](double value) {
      const std::string fields = body(value);
      return !completion_refusal(completion_body(fields.substr(1, fields.size() - 2))).empty();
    };
    EXPECT_EQ(refuses(limit.minimum), limit.above_minimum) << field;
    EXPECT_TRUE(refuses(limit.minimum - 1)) << field;
    const double most = std::isinf(limit.maximum) ? static_cast<double>(context) : limit.maximum;
    EXPECT_TRUE(refuses(most + 1)) << field;
    if (field == "min_tokens") continue;  // which max_tokens limits
    EXPECT_FALSE(refuses(most)) << field;
  }
}

TEST(OpenApi, ShowsDefaultsOfSamplingFields) {
  const Json document = Json::parse(test_api().document());
  const Json& fields = document["components"]["schemas"]["CompletionRequest"]["properties"];
  const SamplingParams defaults;
  EXPECT_EQ(fields["n"]["default"], defaults.n);
  EXPECT_EQ(fields["max_tokens"]["default"], *defaults.max_tokens);
  EXPECT_EQ(fields["ignore_eos"]["default"], defaults.ignore_eos);
  EXPECT_EQ(fields["skip_special_tokens"]["default"], defaults.skip_special_tokens);
}

TEST(OpenApi, SaysWhereAKeyIsNeeded) {
  const Json open = Json::parse(test_api().document());
  EXPECT_FALSE(open["components"].contains("securitySchemes"));
  const Json closed = Json::parse(ApiDescription(test_model(), true).document());
  EXPECT_EQ(closed["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
  EXPECT_TRUE(closed["paths"]["/v1/models"]["get"]["responses"].contains("401"));
  EXPECT_FALSE(closed["paths"]["/health"]["get"].contains("security"));
}

TEST(OpenApi, ResponsesCanBeChecked) {
  const JsonSchemas responses(response_schemas());
  EXPECT_FALSE(responses.check("Error", Json::parse(error_body(server_error("x")))));
  EXPECT_TRUE(responses.check("Error", Json::parse("{}")));
  EXPECT_FALSE(responses.check("ModelList", Json::parse(models_body(test_model()))));
  EXPECT_FALSE(responses.check("Model", Json::parse(model_body(test_model(), "gpt-4"))));
}

TEST(OpenApi, NearMissesAreOfUnknownFieldsOnly) {
  const Json body = Json::parse(R"({"prompt": "x", "stopp": 1, "qqqqq": 2})");
  EXPECT_EQ(test_api().near_misses("CompletionRequest", body),
            std::vector<std::string>{"the unknown field stopp is ignored; did you mean stop?"});
}

TEST(PatternUpTo, MatchesTheIntegersUpToIt) {
  std::mt19937 random(1);
  for (const int64_t last : {0, 1, 9, 10, 11, 99, 100, 101, 1909, 8191, 32000, 151935, 151936}) {
    const std::regex pattern(pattern_up_to(last));
    const auto matches = [&](int64_t n) { return std::regex_search(std::to_string(n), pattern); };
    EXPECT_TRUE(matches(0) && matches(last)) << last;
    EXPECT_FALSE(matches(last + 1) || matches(last * 10 + 10)) << last;
    for (int i = 0; i < 500; ++i) {
      const auto n = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * last + 20));
      EXPECT_EQ(matches(n), n <= last) << n << " of " << last;
    }
    for (const char* text : {"", "00", "01", "-1", "1a", " 1", "1.0"}) {
      EXPECT_FALSE(std::regex_search(text, pattern)) << text;
    }
  }
}

TEST(Models, AreListedByEachName) {
  const Json list = Json::parse(models_body(test_model()));
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "lexicon");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(list["data"][0]["vocab_size"], 8192);
  EXPECT_EQ(list["data"][1]["id"], "gpt-4");
  EXPECT_EQ(refusal([] { model_body(test_model(), "other"); }),
            "404 model: The model 'other' does not exist.");
}

}  // namespace
}  // namespace quire::server
