#include "quire/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "quire/error.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json added(int id, const std::string& content, bool special = false) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// a 0, b 1, ab 2, abb 3, "Ġ" 4, <s> 5, <x> 6; ByteLevel decoder, no pre-tokenizer.
json small_file() {
  return {{"added_tokens", {added(5, "<s>", true), added(6, "<x>")}},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"abb", 3}, {"Ġ", 4}}},
            {"merges", {"a b", "ab b"}}}}};
}

Tokenizer make(const json& file, const json& config = nullptr) {
  return Tokenizer::from_json(file.dump(), config.is_null() ? std::string() : config.dump());
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string load_error(const json& file) {
  return error_of([&] { make(file); });
}

TEST(Tokenizer, MergesInOrderOfRankAndDropsUnknownCharacters) {
  const Tokenizer t = make(small_file());
  EXPECT_THAT(t.encode("abb"), ElementsAre(3));
  EXPECT_THAT(t.encode("aabab"), ElementsAre(0, 2, 2));
  EXPECT_THAT(t.encode("azb"), ElementsAre(2));
  EXPECT_THAT(t.encode(""), IsEmpty());
}

TEST(Tokenizer, ReadsMergesAsPairsToo) {
  json file = small_file();
  file["model"]["merges"] = json::array({{"a", "b"}, {"ab", "b"}});
  EXPECT_THAT(make(file).encode("abb"), ElementsAre(3));
}

TEST(Tokenizer, ReadsMergesThatStandBeforeTheVocabulary) {
  const std::string text = R"({"model": {"merges": ["a b"], "vocab": {"a": 0, "b": 1, "ab": 2}}})";
  EXPECT_THAT(Tokenizer::from_json(text).encode("ab"), ElementsAre(2));
}

json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

TEST(Tokenizer, BoundsWhatItsNormalizerMakes) {
  json file = small_file();
  json steps = json::array();
  for (int i = 0; i < 20; ++i) steps.push_back(replace("a", "aaaa"));
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_THAT(error_of([&] { make(file).encode("xax"); }), HasSubstr("at most 16 times"));
  EXPECT_THAT(error_of([&] { make(file).encode(std::string(1 << 20, 'a')); }),
              HasSubstr("at most 16 times"));
  EXPECT_THAT(make(file).encode("b"), ElementsAre(1));
  // A token's own text is normalised when the file is read.
  file["added_tokens"][0]["normalized"] = true;
  file["added_tokens"][0]["content"] = "<a>";
  EXPECT_THAT(load_error(file), HasSubstr("at most 16 times"));
  // One step with a large content, of a string or of a regular expression.
  file = small_file();
  file["normalizer"] = replace("a", std::string(10'000, 'b'));
  EXPECT_THAT(error_of([&] { make(file).encode(std::string(100'000, 'a')); }),
              HasSubstr("at most 16 times"));
  file["normalizer"]["pattern"] = {{"Regex", "a"}};
  EXPECT_THAT(error_of([&] { make(file).encode(std::string(100'000, 'a')); }),
              HasSubstr("at most 16 times"));
}

TEST(Tokenizer, MakesNoSpecialTokensOfPlainText) {
  const Tokenizer t = make(small_file());
  const auto encode = [&](const std::string& text, std::vector<TextSpan> plain) {
    return t.encode(text, plain, /*add_special_tokens=*/false);
  };
  EXPECT_THAT(encode("a<s>b", {}), ElementsAre(0, 5, 1));
  EXPECT_THAT(encode("a<s>b", {{0, 1}, {4, 5}}), ElementsAre(0, 5, 1));
  // One byte of it is enough.
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_THAT(encode("a<s>b", {{i, i + 1}}), ElementsAre(2)) << i;
  }
  EXPECT_THAT(encode("<s><s><s>", {{3, 6}}), ElementsAre(5, 5));
  EXPECT_THAT(encode("<s><s><s>", {{0, 3}, {6, 9}}), ElementsAre(5));
  // Those that are not special are found everywhere.
  EXPECT_THAT(encode("a<x>b", {{0, 5}}), ElementsAre(0, 6, 1));
  EXPECT_THAT(encode("<<x>s><x>", {{0, 9}}), ElementsAre(6, 6));
}

TEST(Tokenizer, MakesNoSpecialTokensOfPlainTextByMerging) {
  json file = small_file();
  // <s> is a token of the model as well, as in SentencePiece's vocabularies.
  file["model"]["vocab"]["<s>"] = 5;
  file["model"]["vocab"]["<"] = 6;
  file["model"]["vocab"]["s"] = 7;
  file["model"]["vocab"][">"] = 8;
  file["model"]["vocab"]["<s"] = 9;
  file["added_tokens"][1]["id"] = 10;
  file["model"]["merges"] = {"a b", "ab b", "< s", "<s >"};
  const Tokenizer t = make(file);
  const std::string text = "ab<s>é<s>";
  EXPECT_THAT(t.encode(text, false), ElementsAre(2, 5, 5));
  const std::vector<TextSpan> plain = {{0, text.size()}};
  const auto ids = t.encode(text, plain, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 5), 0);
  EXPECT_EQ(t.decode(ids), "ab<s><s>");
}

TEST(Tokenizer, MakesNoSpecialTokensOfPlainTextByNormalizing) {
  json file = small_file();
  file["added_tokens"][0]["normalized"] = true;
  file["normalizer"] = replace("_", "");
  const Tokenizer t = make(file);
  const auto encode = [&](const std::string& text, std::vector<TextSpan> plain) {
    return t.encode(text, plain, /*add_special_tokens=*/false);
  };
  EXPECT_THAT(encode("a<_s>b", {}), ElementsAre(0, 5, 1));
  EXPECT_THAT(encode("<s>ab<s>", {{3, 5}}), ElementsAre(5, 2, 5));  // the template's own
  for (const std::vector<TextSpan>& plain :
       {std::vector<TextSpan>{{0, 4}}, {{2, 3}}, {{0, 1}, {3, 4}}}) {
    EXPECT_THAT(encode("<_s>ab", plain), ElementsAre(2));
  }
}

TEST(Tokenizer, FindsAddedTokensInText) {
  const Tokenizer t = make(small_file());
  EXPECT_THAT(t.encode("ab<s>a<x><s"), ElementsAre(2, 5, 0, 6));
  EXPECT_TRUE(t.is_special(5));
  EXPECT_FALSE(t.is_special(6));
  EXPECT_FALSE(t.is_special(0));
  EXPECT_FALSE(t.is_special(-1));
  EXPECT_EQ(t.decode(std::vector<std::int32_t>{0, 5, 6, 1}, true), "a<x>b");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer t = make(small_file());
  EXPECT_EQ(t.vocab_size(), 7);
  EXPECT_EQ(t.token_to_id("ab"), 2);
  EXPECT_EQ(t.token_to_id("<x>"), 6);
  EXPECT_EQ(t.token_to_id("zzz"), std::nullopt);
  EXPECT_EQ(t.id_to_token(3), "abb");
  EXPECT_EQ(t.id_to_token(5), "<s>");
  EXPECT_EQ(t.id_to_token(7), std::nullopt);
  EXPECT_EQ(t.id_to_token(-1), std::nullopt);
}

TEST(Tokenizer, TakesBosAndEosFromTheConfig) {
  const Tokenizer t =
      make(small_file(), {{"bos_token", "<s>"}, {"eos_token", {{"content", "<x>"}}}});
  EXPECT_EQ(t.bos_token(), "<s>");
  EXPECT_EQ(t.bos_token_id(), 5);
  EXPECT_EQ(t.eos_token(), "<x>");
  EXPECT_EQ(t.eos_token_id(), 6);
  const Tokenizer none = make(small_file(), {{"bos_token", nullptr}});
  EXPECT_EQ(none.bos_token(), "");
  EXPECT_EQ(none.bos_token_id(), std::nullopt);
}

TEST(Tokenizer, AddsWhatThePostProcessorOrTheConfigSays) {
  json file = small_file();
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {5}}}}}}};
  EXPECT_THAT(make(file).encode("ab"), ElementsAre(5, 2));
  EXPECT_THAT(make(file).encode("ab", false), ElementsAre(2));
  const json config = {{"eos_token", "<x>"}, {"add_bos_token", false}, {"add_eos_token", true}};
  EXPECT_THAT(make(file, config).encode("ab"), ElementsAre(2, 6));
}

TEST(Tokenizer, NamesTheByteThatIsNoUtf8) {
  const Tokenizer t = make(small_file());
  for (const std::string bad :
       {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_THAT(error_of([&] { t.encode("abc" + bad); }), HasSubstr("offset 3")) << bad;
  }
}

TEST(Tokenizer, RefusesIdsOutOfRange) {
  const Tokenizer t = make(small_file());
  for (const std::int32_t id : {-1, 7}) {
    EXPECT_THAT(error_of([&] {
                  t.decode(std::vector<std::int32_t>{0, id});
                }),
                HasSubstr("at position 1: ids of this tokenizer lie in 0..6"));
  }
}

TEST(Tokenizer, LongRunsTakeNoQuadraticTime) {
  // Quadratic time would take minutes here, not milliseconds.
  json file = small_file();
  json& vocabulary = file["model"]["vocab"];
  file["model"]["merges"] = json::array();
  vocabulary = {{"a", 0}, {"b", 1}, {"Ġ", 2}, {"aa", 3}, {"aaaa", 4}};
  file["model"]["merges"] = {"a a", "aa aa"};
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode(std::string(1'000'000, 'a')).size(), 250'000u);
  EXPECT_EQ(t.encode(std::string(1'000'000, 'b')).size(), 1'000'000u);
}

TEST(Tokenizer, EncodesFromManyThreads) {
  const Tokenizer t = make(small_file());
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int32_t>> results(8);
  for (auto& result : results) {
    threads.emplace_back([&t, &result] {
      for (int i = 0; i < 200; ++i) result = t.encode("abb a<s>babab ab");
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Tokenizer, RefusesWhatItDoesNotSupport) {
  const auto with = [](const std::string& pointer, const json& value) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    return load_error(file);
  };
  EXPECT_THAT(with("/model/type", "Unigram"),
              HasSubstr("model.type is \"Unigram\", which is not supported; quire supports BPE"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("model.dropout must be null"));
  EXPECT_THAT(with("/model/unk_token", "<u>"), HasSubstr("model.unk_token is \"<u>\""));
  EXPECT_THAT(with("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with("/normalizer", {{"type", "Nmt"}}), HasSubstr("normalizer is \"Nmt\""));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
              HasSubstr("pre_tokenizer is \"BertPreTokenizer\""));
  EXPECT_THAT(with("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("post_processor is \"BertProcessing\""));
  EXPECT_THAT(with("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder is \"WordPiece\""));
}

TEST(Tokenizer, RefusesBrokenFiles) {
  json file = small_file();
  file["model"]["merges"] = {"a c"};
  EXPECT_THAT(load_error(file), HasSubstr("\"c\" is not in model.vocab"));
  file["model"]["merges"] = {"a b c"};
  EXPECT_THAT(load_error(file), HasSubstr("one space between"));
  file = small_file();
  file["model"]["vocab"]["b"] = 0;
  EXPECT_THAT(load_error(file), HasSubstr("gives the id 0 to two tokens"));
  file = small_file();
  file["model"]["vocab"]["b"] = 1'000'000'000;
  EXPECT_THAT(load_error(file), HasSubstr("larger than 4194303"));
  file = small_file();
  file["added_tokens"][1]["id"] = 9;
  EXPECT_THAT(load_error(file), HasSubstr("added_tokens[1].id is 9"));
  file = small_file();
  file.erase("model");
  EXPECT_THAT(load_error(file), HasSubstr("has no field \"model\""));
  EXPECT_THAT(error_of([] { Tokenizer::from_json("{\"model\": {\"vocab\": {\"a\": 0}"); }),
              HasSubstr("at byte offset"));
  EXPECT_THAT(error_of([] { Tokenizer::from_json("{\"x\": " + std::string(100'000, '[')); }),
              HasSubstr("nested deeper than 64"));
}

TEST(Tokenizer, SaysWhereThereIsNoTokenizer) {
  const std::string message =
      error_of([] { Tokenizer::from_folder(std::filesystem::path("no/such/folder")); });
  EXPECT_THAT(message, HasSubstr("no/such/folder has no tokenizer.json"));
}

}  // namespace
}  // namespace quire
