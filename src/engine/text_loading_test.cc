#include "engine/text_loading.h"

#include <gtest/gtest.h>

#include <latch>
#include <string>

#include "quire/error.h"
#include "quire/model_text.h"

namespace quire {
namespace {

const std::string kModelWithTexts = QUIRE_SOURCE_DIR "/models/lexicon";

TEST(TextLoading, ReadsWhileTheCallerGoesOn) {
  std::latch goes_on(1);
  const TextLoading texts([&] {
    goes_on.wait();
    return ModelTexts{load_tokenizer(kModelWithTexts), std::nullopt};
  });
  EXPECT_NO_THROW(texts.check());  // it is not ready
  goes_on.count_down();
  const ModelTexts read = texts.wait();
  EXPECT_EQ(read.tokenizer.value().vocab_size(), load_tokenizer(kModelWithTexts).vocab_size());
  EXPECT_FALSE(read.chat_template);
  EXPECT_NO_THROW(texts.check());
}

TEST(TextLoading, TellsWhatWasThrown) {
  const TextLoading texts([]() -> ModelTexts { throw Error("no tokenizer"); });
  EXPECT_NO_THROW(texts.finish());
  EXPECT_THROW(texts.check(), Error);
  EXPECT_THROW(texts.wait(), Error);
}

}  // namespace
}  // namespace quire
