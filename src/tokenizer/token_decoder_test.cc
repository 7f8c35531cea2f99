#include "tokenizer/token_decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::tokenizer_internal {
namespace {

using nlohmann::json;

// The pieces that come out token by token, the last of them from finish().
std::vector<std::string> pieces(const json& config, const std::vector<std::string>& tokens) {
  const Decoder decoder(config.is_null() ? std::nullopt
                                         : std::optional(JsonField(config, "decoder")));
  DecoderChain chain(decoder);
  std::vector<std::string> out;
  for (const std::string& token : tokens) chain.push(token, out.emplace_back());
  chain.finish(out.emplace_back());
  return out;
}

using Pieces = std::vector<std::string>;

const json kByteLevel = {{"type", "ByteLevel"}};
const json kLlama = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};

TEST(Decoder, ByteLevelHoldsBackHalfACharacter) {
  EXPECT_EQ(pieces(kByteLevel, {"a", "\u00e2\u0124", "\u00ac", "b"}),
            (Pieces{"a", "", "€", "b", ""}));
}

std::string within(const json& config, const std::string& token) {
  return Decoder(JsonField(config, "decoder")).bytes_within(token);
}

TEST(Decoder, TheBytesThatATokenAddsToAText) {
  EXPECT_EQ(within(kByteLevel, "Ġa"), " a");
  EXPECT_EQ(within(kByteLevel, "âĤ"), "\xE2\x82");
  EXPECT_EQ(within(kByteLevel, "<think>"), "<think>");
  EXPECT_EQ(within(kLlama, "▁a"), " a");
  EXPECT_EQ(within(kLlama, "<0xE2>"), "\xE2");
  EXPECT_EQ(within(kLlama, "▁"), " ");
}

TEST(Decoder, ByteLevelReplacesWhatIsNoCharacter) {
  EXPECT_EQ(pieces(kByteLevel, {"\u00e2\u0124", "a"}), (Pieces{"", "\ufffda", ""}));
  EXPECT_EQ(pieces(kByteLevel, {"\u00e2\u0124"}), (Pieces{"", "\ufffd"}));
  EXPECT_EQ(pieces(kByteLevel, {"\u0122"}), (Pieces{"\ufffd", ""}));
}

TEST(Decoder, ByteLevelTakesForeignCharactersAsTheyAre) {
  EXPECT_EQ(pieces(kByteLevel, {"\u0120x", "\u0120 x"}), (Pieces{" x", "\u0120 x", ""}));
}

TEST(Decoder, LlamaStripsOneSpaceOnceAndJoinsBytes) {
  EXPECT_EQ(pieces(kLlama, {"▁▁Hi", "▁there", "<0xE2>", "<0x82>", "<0xAC>", "!"}),
            (Pieces{" Hi", " there", "", "", "", "€!", ""}));
}

TEST(Decoder, AWrongByteSpoilsItsWholeRun) {
  EXPECT_EQ(pieces(kLlama, {"<0x41>", "<0xE2>", "x"}), (Pieces{"", "", "\ufffd\ufffdx", ""}));
  EXPECT_EQ(pieces(kLlama, {"<0x41>", "<0x42>"}), (Pieces{"", "", "AB"}));
}

TEST(Decoder, StripsTheEndOfAFusedText) {
  const json config = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", "-"}, {"start", 0}, {"stop", 2}}}}};
  EXPECT_EQ(pieces(config, {"a-", "-", "b--", "-"}), (Pieces{"a", "", "--b", "-", ""}));
}

TEST(Decoder, MetaspaceDropsTheMarkerOfTheFirstToken) {
  const json config = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(pieces(config, {"▁a", "▁b"}), (Pieces{"a", " b", ""}));
}

TEST(Decoder, WithoutADecoderSpacesSeparateTokens) {
  EXPECT_EQ(pieces(nullptr, {"a", "b"}), (Pieces{"a", " b", ""}));
}

TEST(Decoder, ReplaceAfterFuseSeesTheWholeText) {
  const json config = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Fuse"}},
        {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "X"}}}}};
  EXPECT_EQ(pieces(config, {"a", "b", "a"}), (Pieces{"", "", "", "Xa"}));
}

}  // namespace
}  // namespace quire::tokenizer_internal
