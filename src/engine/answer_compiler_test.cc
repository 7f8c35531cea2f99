#include "engine/answer_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/constrained_requests.h"
#include "grammar/tokens/constraint.h"
#include "quire/error.h"
#include "quire/model_text.h"

namespace quire {
namespace {

using engine_test::choice;
using engine_test::json_schema;
using engine_test::regex;
using testing::HasSubstr;

class AnswerCompilerTest : public testing::Test {
 protected:
  static AnswerCompilerOptions options() {
    AnswerCompilerOptions options;
    options.vocab_size = 8192;
    options.eos_token_ids = {8191, 8189};
    return options;
  }
  static std::string refusal_of(AnswerCompiler& compiler, const StructuredOutput& output) {
    try {
      compiler.compile(output);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Tokenizer tokenizer_ = load_tokenizer(engine_test::lexicon_config().model);
};

TEST_F(AnswerCompilerTest, CompilesOnceForAllThatAskForIt) {
  AnswerCompiler compiler(tokenizer_, options());
  std::vector<AnswerLanguagePtr> found(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] { found[i] = compiler.compile(regex("[a-z]+ [a-z]+")); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const AnswerLanguagePtr& language : found) EXPECT_EQ(language, found[0]);
  EXPECT_EQ(compiler.num_compiled(), 1);
  EXPECT_NE(compiler.compile(choice({"[a-z]+ [a-z]+"})), found[0]);
  StructuredOutput later = regex("[a-z]+ [a-z]+");
  later.begins_after = "e";
  EXPECT_NE(compiler.compile(later), found[0]);
  EXPECT_EQ(compiler.num_compiled(), 3);
}

TEST_F(AnswerCompilerTest, FindsWhatIsCompiled) {
  AnswerCompiler compiler(tokenizer_, options());
  EXPECT_EQ(compiler.find(choice({"a"})), nullptr);
  const AnswerLanguagePtr compiled = compiler.compile(choice({"a"}));
  EXPECT_EQ(compiler.find(choice({"a"})), compiled);
  EXPECT_EQ(compiler.num_compiled(), 1);
}

TEST_F(AnswerCompilerTest, GivesUpOnWhatTakesTooLong) {
  AnswerCompiler compiler(tokenizer_, options());
  compiler.compile(choice({"a"}));  // which makes the vocabulary's tree
  const auto long_ago = AnswerCompiler::Clock::now() - std::chrono::hours(1);
  const StructuredOutput large = regex("([a-z]{1,60}[0-9]){1,60}");
  EXPECT_EQ(compiler.compile_by(large, long_ago), nullptr);
  EXPECT_EQ(compiler.find(large), nullptr);
  EXPECT_EQ(compiler.num_failed(), 0);
  EXPECT_NE(compiler.compile_by(choice({"b"}), long_ago), nullptr) << "no time was looked at";
  EXPECT_EQ(compiler.compile_by(choice({"a"}), long_ago), compiler.find(choice({"a"})));
  const AnswerLanguagePtr compiled =
      compiler.compile_by(large, AnswerCompiler::Clock::now() + std::chrono::hours(1));
  EXPECT_NE(compiled, nullptr);
  EXPECT_EQ(compiler.compile(large), compiled);
  EXPECT_EQ(compiler.compile_by(large, long_ago), compiled);
}

TEST_F(AnswerCompilerTest, ThoseWhoHaveTimeCompileWhatOthersGaveUp) {
  const StructuredOutput large = regex("([a-z]{1,40}[0-9]){1,40}");
  for (int round = 0; round < 10; ++round) {
    AnswerCompiler compiler(tokenizer_, options());
    std::vector<AnswerLanguagePtr> found(4);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < found.size(); ++i) {
      threads.emplace_back([&] { compiler.compile_by(large, AnswerCompiler::Clock::now()); });
      threads.emplace_back([&, i] { found[i] = compiler.compile(large); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const AnswerLanguagePtr& language : found) {
      EXPECT_NE(language, nullptr);
      EXPECT_EQ(language, found[0]);
    }
  }
}

TEST_F(AnswerCompilerTest, ForgetsTheOldestThatNobodyHolds) {
  AnswerCompilerOptions few = options();
  few.max_kept = 2;
  AnswerCompiler compiler(tokenizer_, few);
  const AnswerLanguagePtr held = compiler.compile(choice({"0"}));
  for (int round = 0; round < 20; ++round) {
    for (const char* text : {"1", "2", "3"}) compiler.compile(choice({text}));
  }
  EXPECT_EQ(compiler.num_compiled(), 61);
  EXPECT_EQ(compiler.compile(choice({"0"})), held);
  EXPECT_EQ(compiler.num_compiled(), 61);
  EXPECT_NE(compiler.compile(choice({"3"})), nullptr);
  EXPECT_EQ(compiler.num_compiled(), 61) << "it was the newest before";
}

TEST_F(AnswerCompilerTest, KeepsNoMoreBytesThanItMay) {
  AnswerCompilerOptions small = options();
  small.max_kept_bytes = 1;
  AnswerCompiler compiler(tokenizer_, small);
  for (int round = 0; round < 3; ++round) compiler.compile(choice({"a text"}));
  EXPECT_EQ(compiler.num_compiled(), 3);
}

TEST_F(AnswerCompilerTest, CountsWhatAnswersHaveTaught) {
  AnswerCompilerOptions small = options();
  small.max_kept_bytes = size_t{3} << 19;
  AnswerCompiler compiler(tokenizer_, small);
  const StructuredOutput many_states = regex("[a-z]{1,2000}");
  AnswerLanguagePtr language = compiler.compile(many_states);
  compiler.compile(choice({"a"}));
  ASSERT_EQ(compiler.find(many_states), language);
  {
    grammar::Constraint constraint(language->language, language->trie);
    std::vector<uint32_t> mask(grammar::mask_words(language->trie->num_tokens()));
    while (language->language->learnt_bytes() <= small.max_kept_bytes) {
      constraint.allow_tokens(grammar::Constraint::kAnyNumber, mask);
      ASSERT_TRUE(constraint.accept_bytes("a"));
    }
  }
  language = nullptr;
  compiler.compile(choice({"b"}));
  EXPECT_EQ(compiler.find(many_states), nullptr);
}

TEST_F(AnswerCompilerTest, SaysWhatIsWrong) {
  AnswerCompiler compiler(tokenizer_, options());
  EXPECT_THAT(refusal_of(compiler, regex("(a")), HasSubstr("structured_output: "));
  EXPECT_THAT(refusal_of(compiler, choice({})), HasSubstr("structured_output: "));
  EXPECT_THAT(refusal_of(compiler, json_schema("{\"type\": 7}")), HasSubstr("#/type"));
  const int64_t num_failed = compiler.num_failed();
  const std::string first = refusal_of(compiler, regex("["));
  EXPECT_NE(first, "");
  EXPECT_EQ(refusal_of(compiler, regex("[")), first);
  EXPECT_THROW(compiler.find(regex("[")), Error);
  EXPECT_EQ(compiler.num_failed(), num_failed + 1) << "the second time it is known";
  EXPECT_EQ(compiler.num_compiled(), 0);
  AnswerCompilerOptions limited = options();
  limited.limits.memory_bytes = 1000;
  AnswerCompiler small(tokenizer_, limited);
  EXPECT_THAT(refusal_of(small, regex("[a-z]{1,500}")), HasSubstr("memory"));
  AnswerCompiler none(std::nullopt, options());
  EXPECT_THAT(refusal_of(none, regex("a")), HasSubstr("needs a tokenizer"));
}

}  // namespace
}  // namespace quire
