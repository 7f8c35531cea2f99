// What is said of models that are damaged in one way each.
#include "quire/model_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "engine/damaged_model.h"
#include "engine/model_check_reference.h"
#include "engine/model_check_text.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

EngineConfig config_of(const std::string& folder) {
  EngineConfig config;
  config.model = folder;
  config.threads = 1;
  return config;
}

TEST(ModelCheck, FindsNothingInSoundModels) {
  for (const std::string& name : engine_test::golden_cases()) {
    const ModelCheck check =
        check_model(config_of((engine_test::golden_models() / name).string()), std::nullopt);
    for (const ModelProblem& problem : check.problems) ADD_FAILURE() << name << problem.message;
    EXPECT_FALSE(check.tensors.empty());
    ASSERT_TRUE(check.answer);
    EXPECT_EQ(check.answer->output_token_ids.size(), 16u);
    EXPECT_EQ(check.answer->logprobs.size(), 16u);
  }
}

TEST(ModelCheck, NamesTheTensorThatIsNoNumber) {
  const engine_test::ModelWithoutLogits model("qwen3-tied");
  int64_t last_done = 0;
  int64_t total = 0;
  EngineConfig config = config_of(model.folder());
  config.on_progress = [&](std::string_view phase, int64_t done, int64_t all) {
    if (phase == "Reading weights") last_done = done;
    total = all;
  };
  const ModelCheck check = check_model(config, std::nullopt);
  ASSERT_EQ(check.problems.size(), 2u);
  EXPECT_EQ(check.problems[0].part, "weights");
  EXPECT_THAT(check.problems[0].message, HasSubstr("model.norm.weight (model.safetensors): "));
  EXPECT_THAT(check.problems[0].message, HasSubstr("values are NaN."));
  EXPECT_EQ(check.problems[1].part, "run");
  EXPECT_THAT(check.problems[1].message, HasSubstr("logits are not finite"));
  EXPECT_FALSE(check.answer);
  EXPECT_EQ(last_done, check.weight_bytes);
}

TEST(ModelCheck, NamesAnOutputLayerThatIsNotUsed) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("quire_tied_{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::copy(engine_test::golden_models() / "llama-bias", folder);
  const std::filesystem::path config = folder / "config.json";
  std::string text = read_text_file(config, 1 << 20);
  const std::string untied = "\"tie_word_embeddings\": false";
  ASSERT_NE(text.find(untied), std::string::npos);
  text.replace(text.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  std::ofstream(config) << text;
  const ModelCheck check = check_model(config_of(folder.string()), std::nullopt);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(check.problems.size(), 1u);
  EXPECT_EQ(check.problems[0].part, "weights");
  EXPECT_THAT(check.problems[0].message,
              HasSubstr("lm_head.weight (model.safetensors): it is not used, as "
                        "tie_word_embeddings is true"));
}

KnownAnswer known_answer() {
  return {.prompt = "a",
          .prompt_token_ids = {1, 2, 3},
          .output_token_ids = {4, 5, 6},
          .logprobs = {-0.1, -0.2, -0.3},
          .runner_up_logprobs = {-3, -0.205, -4}};
}

TEST(ModelReference, ComparesPrompts) {
  KnownAnswer other = known_answer();
  EXPECT_THAT(compare_prompts(other, known_answer()), IsEmpty());
  other.prompt_token_ids = {1, 7, 3, 4};
  EXPECT_THAT(compare_prompts(other, known_answer()),
              ElementsAre(HasSubstr("has 4 tokens; expected 3. Token 1 is 7; expected 2")));
  other.prompt_token_ids = {1, 2};
  EXPECT_THAT(compare_prompts(other, known_answer()),
              ElementsAre(HasSubstr("Token 2 is missing; expected 3")));
  other.prompt = "b";
  EXPECT_THAT(compare_prompts(other, known_answer()),
              ElementsAre(HasSubstr("the chat template differs")));
}

TEST(ModelReference, ComparesAnswersWithinTheTolerance) {
  const ModelReference reference{.answer = known_answer(), .tolerance = 0.01};
  KnownAnswer answer = known_answer();
  answer.logprobs = {-0.105, -0.195, -0.3};
  EXPECT_THAT(compare_answers(answer, reference), IsEmpty());
  answer.logprobs[2] = -0.32;
  EXPECT_THAT(compare_answers(answer, reference),
              ElementsAre(HasSubstr("output token 2 is -0.3200; expected -0.3000, within 0.01")));
  answer.output_token_ids[0] = 9;
  EXPECT_THAT(compare_answers(answer, reference), ElementsAre("Output token 0 is 9; expected 4."));
  // The best two of the second token are as good as tied.
  answer = known_answer();
  answer.output_token_ids = {4, 8, 9};
  EXPECT_THAT(compare_answers(answer, reference), IsEmpty());
  answer = known_answer();
  answer.output_token_ids.pop_back();
  EXPECT_THAT(compare_answers(answer, reference),
              ElementsAre("The answer has 2 tokens; expected 3."));
}

Tokenizer byte_tokenizer(const std::string& config = "{}") {
  // GPT-2's bytes: printable ones stand for themselves, the others for characters from U+0100 on.
  std::string vocab;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = is_plain ? byte : next++;
    vocab += fmt::format("{}\"\\u{:04x}\": {}", byte > 0 ? ", " : "", code, byte);
  }
  return Tokenizer::from_json(
      R"({"added_tokens": [{"id": 256, "content": "<|end|>", "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false, "special": true}],
          "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
          "trim_offsets": true, "use_regex": true}, "post_processor": null,
          "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
          "use_regex": true}, "model": {"type": "BPE", "vocab": {)" +
          vocab + R"(}, "merges": []}})",
      config);
}

TEST(ModelCheckText, FindsWhatDoesNotFit) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::vector<int32_t> eos = {256};
  EXPECT_THAT(check_tokenizer(tokenizer, eos, 257), IsEmpty());
  EXPECT_THAT(check_tokenizer(tokenizer, eos, 256),
              ElementsAre(HasSubstr("has ids up to 256, and the model's embedding 256 rows")));
  EXPECT_THAT(check_tokenizer(tokenizer, std::vector<int32_t>{300}, 400),
              ElementsAre(HasSubstr("The end-of-sequence token 300")));
  EXPECT_THAT(check_tokenizer(tokenizer, {}, 257),
              ElementsAre(HasSubstr("Nothing ends an answer")));
  EXPECT_THAT(check_tokenizer(byte_tokenizer(R"({"eos_token": "<|gone|>"})"), eos, 257),
              ElementsAre(HasSubstr("names the eos_token \"<|gone|>\"")));
}

TEST(ModelCheckText, FindsTemplatesThatDoNotFit) {
  const Tokenizer tokenizer = byte_tokenizer();
  const auto problems = [&](const char* source) {
    return check_chat_template(ChatTemplate(source), tokenizer);
  };
  EXPECT_THAT(problems("{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"),
              IsEmpty());
  EXPECT_THAT(problems("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"),
              ElementsAre("It writes <|im_end|>, which is no token of tokenizer.json."));
  EXPECT_THAT(problems("{{ messages[0].content }}{{ messages[2].content }}"),
              ElementsAre(HasSubstr("without \"Good morning to you.\" of the assistant")));
  EXPECT_THROW(problems("{{ raise_exception('no') }}"), Error);
  EXPECT_EQ(known_prompt(nullptr), "What is the capital of France?");
}

}  // namespace
}  // namespace quire
