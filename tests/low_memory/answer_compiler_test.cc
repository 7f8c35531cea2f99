// Allocations fail while a constraint is refused: those who wait hear why, and what is remembered
// stays whole.
#include "engine/answer_compiler.h"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <utility>

#include "engine/failed_answers.h"
#include "low_memory/failing_allocator.h"
#include "quire/error.h"
#include "quire/model_text.h"

namespace quire {
namespace {

using low_memory::allow_all;
using low_memory::fail_after;

constexpr FailedAnswers::Clock::time_point kStart{};

std::string longer_than_a_string_itself(char letter) {
  return std::string(100, letter);
}

TEST(LowMemoryFailedAnswers, ForgetWhatTheyHaveNoMemoryFor) {
  FailedAnswers failed({.max_kept = 3});
  failed.add("known", "why", kStart);
  bool is_added = false;
  for (long count = 0; !is_added; ++count) {
    std::string key = longer_than_a_string_itself('k');
    std::string error = longer_than_a_string_itself('e');
    fail_after(count);
    try {
      failed.add(std::move(key), std::move(error), kStart);
      is_added = true;
    } catch (const std::bad_alloc&) {
      is_added = false;
    }
    allow_all();
    EXPECT_EQ(failed.find(longer_than_a_string_itself('k'), kStart).has_value(), is_added) << count;
    EXPECT_EQ(failed.find("known", kStart), "why");
  }
  for (const char* key : {"a", "b", "c"}) failed.add(key, "why", kStart);
  EXPECT_EQ(failed.find("known", kStart), std::nullopt);
  for (const char* key : {"a", "b", "c"}) EXPECT_EQ(failed.find(key, kStart), "why");
}

TEST(LowMemoryAnswerCompiler, TellsWhatIsWrong) {
  AnswerCompilerOptions options;
  options.vocab_size = 8192;
  AnswerCompiler compiler(load_tokenizer(QUIRE_SOURCE_DIR "/models/lexicon"), options);
  StructuredOutput wrong;
  wrong.kind = StructuredOutput::Kind::kRegex;
  wrong.text = "(never closed";
  bool is_remembered = false;
  for (long count = 0; !is_remembered; ++count) {
    const int64_t num_failed = compiler.num_failed();
    bool is_told = false;
    fail_after(count);
    try {
      compiler.compile(wrong);
    } catch (const Error&) {
      is_told = true;
    } catch (const std::bad_alloc&) {
      is_told = false;
    }
    allow_all();
    EXPECT_EQ(is_told, compiler.num_failed() > num_failed) << count;
    try {
      compiler.find(wrong);
    } catch (const Error&) {
      is_remembered = true;
    }
  }
}

}  // namespace
}  // namespace quire
