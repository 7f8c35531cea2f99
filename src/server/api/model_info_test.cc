#include "server/api/model_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

using testing::ElementsAre;

ModelInfo model_with_adapters() {
  ModelInfo model = test_model();
  model.aliases = {"gpt-4", "org/name:Q4"};
  model.adapters = std::make_shared<AdapterList>();
  for (const char* name : {"caps", "rhyme:v2", "lexicon:odd"}) {
    model.adapters->put({.name = name, .root = "/adapters", .parent = "lexicon", .created = 7});
  }
  return model;
}

// "ID ADAPTER" of what the name stands for.
std::string meaning(const ModelInfo& model, std::string_view name) {
  const auto found = find_model(model, name);
  return found ? found->id + " " + found->adapter : "nothing";
}

TEST(ModelInfo, NamesOfModelsAndAdapters) {
  const ModelInfo model = model_with_adapters();
  EXPECT_EQ(meaning(model, "lexicon"), "lexicon ");
  EXPECT_EQ(meaning(model, "gpt-4"), "lexicon ");
  EXPECT_EQ(meaning(model, "org/name:Q4"), "lexicon ");
  EXPECT_EQ(meaning(model, "caps"), "caps caps");
  EXPECT_EQ(meaning(model, "lexicon:caps"), "caps caps");
  EXPECT_EQ(meaning(model, "gpt-4:rhyme:v2"), "rhyme:v2 rhyme:v2");
  EXPECT_EQ(meaning(model, "org/name:Q4:caps"), "caps caps");
  EXPECT_EQ(meaning(model, "lexicon:odd"), "lexicon:odd lexicon:odd");
  for (const char* name :
       {"", "cap", "caps:caps", "lexicon:", "lexicon:none", ":caps", "org/name:caps"}) {
    EXPECT_EQ(meaning(model, name), "nothing") << name;
  }
  EXPECT_EQ(meaning(test_model(), "lexicon:caps"), "nothing");
}

TEST(ModelInfo, BodiesSayWhoseAdapterItIs) {
  const ModelInfo model = model_with_adapters();
  const auto list = nlohmann::json::parse(models_body(model));
  std::vector<std::string> ids;
  for (const auto& entry : list["data"]) ids.push_back(entry["id"]);
  EXPECT_THAT(ids,
              ElementsAre("lexicon", "gpt-4", "org/name:Q4", "caps", "lexicon:odd", "rhyme:v2"));
  const auto caps = nlohmann::json::parse(model_body(model, "gpt-4:caps"));
  EXPECT_EQ(caps["id"], "caps");
  EXPECT_EQ(caps["parent"], "lexicon");
  EXPECT_EQ(caps["root"], "/adapters");
  EXPECT_EQ(caps["created"], 7);
  EXPECT_EQ(nlohmann::json::parse(model_body(model, "gpt-4"))["parent"], nullptr);
  model.adapters->update("caps",
                         [](const ServedAdapter*) { return std::optional<ServedAdapter>(); });
  EXPECT_EQ(refusal([&] { model_body(model, "caps"); }),
            "404 model: The model 'caps' does not exist.");
}

TEST(ModelInfo, RequestsNameAdapters) {
  const ModelInfo model = model_with_adapters();
  const ApiDescription api(model);
  const auto parse = [&](const std::string& name) {
    return parse_completion_request(completion_body(R"("model": ")" + name + "\""), model, api);
  };
  EXPECT_EQ(parse("lexicon:caps").adapter, "caps");
  EXPECT_EQ(parse("lexicon:caps").model, "caps");
  EXPECT_EQ(parse("gpt-4").adapter, "");
  EXPECT_EQ(parse("gpt-4").model, "gpt-4");
  EXPECT_EQ(refusal([&] { parse("lexicon:none"); }),
            "404 model: The model 'lexicon:none' does not exist.");
}

}  // namespace
}  // namespace quire::server
