#include "cli/options/sampling_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <string>

#include "cli/usage_error.h"
#include "quire/sampling_limits.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

SamplingFields from_options(std::vector<std::string> arguments) {
  CLI::App app;
  SamplingFields fields;
  add_sampling_options(app, fields);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return fields;
}

SamplingFields from_json(std::string_view text) {
  SamplingFields fields;
  const Json object = Json::parse(text);
  for (const auto& [name, value] : object.items()) fields.set(name, value, "line 1", text);
  return fields;
}

TEST(SamplingFields, KeepDefaultsWhereNothingIsGiven) {
  SamplingParams defaults;
  defaults.temperature = 0.6;
  defaults.top_k = 20;
  const SamplingParams params = from_options({"--temperature", "0"}).apply(defaults);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_k, 20);
}

TEST(SamplingFields, ReadEveryOption) {
  const SamplingParams params = from_options({"--n",
                                              "3",
                                              "--temperature",
                                              "0.5",
                                              "--top-k",
                                              "-1",
                                              "--top-p",
                                              ".9",
                                              "--min-p",
                                              "0.1",
                                              "--repetition-penalty",
                                              "1.1",
                                              "--presence-penalty",
                                              "-0.5",
                                              "--frequency-penalty",
                                              "0.25",
                                              "--logit-bias",
                                              "5:-100",
                                              "--logit-bias",
                                              "7:2.5",
                                              "--max-tokens",
                                              "64",
                                              "--min-tokens",
                                              "2",
                                              "--stop",
                                              "END",
                                              "--stop",
                                              "[a,b]",
                                              "--stop-token-ids",
                                              "1,2",
                                              "--include-stop-str-in-output",
                                              "--ignore-eos",
                                              "--no-skip-special-tokens",
                                              "--seed",
                                              "18446744073709551615",
                                              "--logprobs",
                                              "5",
                                              "--prompt-logprobs",
                                              "0"})
                                    .apply({});
  EXPECT_EQ(params.n, 3);
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.top_k, -1);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.min_p, 0.1);
  EXPECT_EQ(params.repetition_penalty, 1.1);
  EXPECT_EQ(params.presence_penalty, -0.5);
  EXPECT_EQ(params.frequency_penalty, 0.25);
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(5, -100), Pair(7, 2.5)));
  EXPECT_EQ(params.max_tokens, 64);
  EXPECT_EQ(params.min_tokens, 2);
  EXPECT_THAT(params.stop, ElementsAre("END", "[a,b]"));
  EXPECT_THAT(params.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(params.include_stop_str_in_output);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_FALSE(params.skip_special_tokens);
  EXPECT_EQ(params.seed, 18446744073709551615ULL);
  EXPECT_EQ(params.logprobs, 5);
  EXPECT_EQ(params.prompt_logprobs, 0);
}

TEST(SamplingFields, ReadTheSameFromJson) {
  const SamplingParams params =
      from_json(R"({"top_p": 0.9, "max_tokens": null, "stop": "END", "stop_token_ids": [1, 2],
                    "logit_bias": {"5": -100}, "ignore_eos": true, "seed": null, "temperature": 1})")
          .apply({});
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.max_tokens, std::nullopt);
  EXPECT_THAT(params.stop, ElementsAre("END"));
  EXPECT_THAT(params.stop_token_ids, ElementsAre(1, 2));
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(5, -100)));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_EQ(params.seed, std::nullopt);
  EXPECT_EQ(params.temperature, 1);
}

TEST(SamplingFields, ReadConstraintsFromJson) {
  SamplingParams defaults;
  defaults.structured_output = StructuredOutput{.kind = StructuredOutput::Kind::kJsonObject};
  const StructuredOutput regex{.kind = StructuredOutput::Kind::kRegex, .text = "a+"};
  EXPECT_EQ(from_json("{}").apply(defaults).structured_output, defaults.structured_output);
  EXPECT_EQ(
      from_json(R"({"structured_outputs": {"regex": "a+"}})").apply(defaults).structured_output,
      regex);
  EXPECT_EQ(from_json(R"({"response_format": {"type": "text"}})").apply(defaults).structured_output,
            std::nullopt);
  EXPECT_EQ(
      from_json(R"({"n": 2, "structured_outputs": {"json": {"const": 18446744073709551617}}})")
          .apply(defaults)
          .structured_output,
      (StructuredOutput{.kind = StructuredOutput::Kind::kJsonSchema,
                        .text = R"({"const": 18446744073709551617})"}));
  EXPECT_EQ(from_json(R"({"structured_outputs": null})").apply(defaults).structured_output,
            std::nullopt);
  EXPECT_THAT([] { from_json(R"({"response_format": {"type": "xml"}})"); },
              ThrowsMessage<Error>("line 1: response_format.type is \"xml\", but must be \"text\", "
                                   "\"json_object\", \"json_schema\" or \"structural_tag\"."));
  EXPECT_THAT(
      [] {
        from_json(R"({"response_format": {"type": "json_object"},
                      "structured_outputs": {"regex": "a"}})");
      },
      ThrowsMessage<Error>("line 1: response_format and structured_outputs are both given, but an "
                           "output follows one constraint"));
  EXPECT_THAT([] { from_json(R"({"response_format": "json"})"); },
              ThrowsMessage<Error>("line 1: response_format: expected an object, got a string"));
}

TEST(SamplingFields, NoneMeansNoLimit) {
  EXPECT_EQ(from_options({"--max-tokens", "none"}).apply({}).max_tokens, std::nullopt);
}

TEST(SamplingFields, RefuseOptionsOfTheWrongType) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--temperature", "hot"},
                                             {"--temperature", ""},
                                             {"--temperature", "none"},
                                             {"--n", "1.5"},
                                             {"--n", "99999999999"},
                                             {"--seed", "-1"},
                                             {"--logit-bias", "5"},
                                             {"--logit-bias", "x:1"},
                                             {"--logit-bias", "5:x"},
                                             {"--stop-token-ids", "1,,2"},
                                             {"--stop-token-ids", ""}}) {
    EXPECT_THROW(from_options(arguments), Error) << arguments[0] << ' ' << arguments[1];
  }
}

TEST(SamplingFields, RefuseJsonOfTheWrongType) {
  for (const char* text :
       {R"({"temperature": "1"})", R"({"temperature": null})", R"({"n": 1.5})", R"({"n": true})",
        R"({"n": 5000000000})", R"({"seed": -1})", R"({"stop": [1]})", R"({"stop": {"a": 1}})",
        R"({"stop_token_ids": 5})", R"({"stop_token_ids": [-1]})",
        R"({"stop_token_ids": [3000000000]})", R"({"logit_bias": {"a": 1}})",
        R"({"logit_bias": {"99999999999": 1}})", R"({"logit_bias": [1]})", R"({"ignore_eos": 1})",
        R"({"max_tokens": "16"})"}) {
    EXPECT_THROW(from_json(text), Error) << text;
  }
}

TEST(SamplingFields, NameTheFieldAndWhatWasMeant) {
  EXPECT_THAT([] { from_json(R"({"temprature": 1})"); },
              ThrowsMessage<Error>("line 1: unknown field temprature; did you mean temperature?"));
  EXPECT_THAT([] { from_json(R"({"top_p": "x"})"); },
              ThrowsMessage<Error>("line 1: top_p: expected a number, got a string"));
  EXPECT_THAT(
      [] {
        from_options({"--top-p", "x"});
      },
      ThrowsMessage<UsageError>("--top-p: expected a number, got 'x'"));
}

TEST(SamplingFields, ValidateRangesWhateverTheModelsDefaults) {
  EXPECT_THROW(from_options({"--temperature", "-1"}).validate(), Error);
  EXPECT_THROW(from_options({"--top-p", "2"}).validate(), Error);
  // The limit may come from the model.
  EXPECT_NO_THROW(from_options({"--min-tokens", "500"}).validate());
}

TEST(SamplingFields, EveryLimitOfTheTableIsApplied) {
  for (const SamplingLimit& limit : kSamplingLimits) {
    const std::string field(limit.field);
    const auto refuses = [&](double value) {
      Json json = std::floor(value) == value ? Json(static_cast<int64_t>(value)) : Json(value);
      if (field == "logit_bias") json = Json{{"7", json}};
      try {
        SamplingFields fields;
        fields.set(field, json, "line 1");
        fields.validate();
      } catch (const Error&) {
        return true;
      }
      return false;
    };
    EXPECT_EQ(refuses(limit.minimum), limit.above_minimum) << field;
    EXPECT_TRUE(refuses(limit.minimum - 1)) << field;
    if (std::isinf(limit.maximum)) continue;
    EXPECT_FALSE(refuses(limit.maximum)) << field;
    EXPECT_TRUE(refuses(limit.maximum + 1)) << field;
  }
}

TEST(SamplingFields, HelpShowsTheDefaults) {
  CLI::App app;
  SamplingFields fields;
  add_sampling_options(app, fields);
  const std::string help = app.help();
  const SamplingParams defaults;
  EXPECT_THAT(help, HasSubstr("Outputs for each prompt [" + std::to_string(defaults.n) + "]"));
  EXPECT_THAT(help, HasSubstr("[" + std::to_string(*defaults.max_tokens) + "]"));
  for (const char* shown :
       {"higher is more varied [1]", "likeliest tokens; 0: all [0]", "add up to P [1]",
        "probability [0]", "less likely [1]", "before this text; repeatable [none]",
        "repeat itself [none]", "Keep special tokens in the text [off]"}) {
    EXPECT_THAT(help, HasSubstr(shown));
  }
}

}  // namespace
}  // namespace quire::cli
