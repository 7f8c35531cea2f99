#include "grammar/tokens/tag_language.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "grammar/tokens/constraint.h"
#include "grammar/tokens/tag_reader_test_util.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

const std::vector<PlainTags>& odd_tags() {
  static const std::vector<PlainTags> all = {
      {.tags = {{"<a", "b*", ">"}}, .triggers = {"<"}},
      {.tags = {{"<a", "b*", ">"}, {"<ab", "[ab]", "b>"}, {"ab<", "", "a"}},
       .triggers = {"<a", "ab<"},
       .min_tags = 1},
      {.tags = {{"ab", "[^]*", "a"}, {"b>", "a|ab", "b"}}, .triggers = {"ab", "b>"}, .max_tags = 2},
      {.tags = {{"aa<", ">?", ""}, {"aa<", "a", "\xC3\xA9"}}, .triggers = {"aa"}, .min_tags = 2},
      {.tags = {{"a", "b*", "b"}, {"ab", "<?", ">"}}, .separator = "<", .min_tags = 1},
      {.tags = {{"a", "b?", ""}, {"ba", "", "b"}}, .min_tags = 2, .max_tags = 3},
      {.tags = {{"", "ab|b<*", ""}, {"a<", "b", ">"}}, .min_tags = 1, .max_tags = 2},
      {.tags = {{"\xC3\xA9", "[\xC3\xA8-\xC3\xAA]", "a"}}, .triggers = {"\xC3\xA9"}},
  };
  return all;
}

constexpr std::string_view kBytes = "ab<>\xC3\xA9";

bool push_all(ByteMatcher& matcher, std::string_view text) {
  for (const char c : text) {
    if (!matcher.push(static_cast<uint8_t>(c))) return false;
  }
  return true;
}

TEST(TagLanguageTest, AcceptsWhatItsDefinitionSays) {
  for (const PlainTags& plain : odd_tags()) {
    const LanguagePtr language = language_of(plain);
    TagReader reader(plain);
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text = texts[i];
      const auto matcher = language->begin();
      const bool is_begun = push_all(*matcher, text);
      ASSERT_EQ(is_begun && matcher->can_end(), reader.accepts(text)) << text;
      if (is_begun) {
        ASSERT_TRUE(reader.accepts(text + matcher->ending())) << text << " " << matcher->ending();
        ASSERT_EQ(matcher->ending().size(), matcher->ending_bytes());
      }
      if (text.size() < 5) {
        for (const char c : kBytes) texts.push_back(text + c);
      }
    }
  }
}

TokenTriePtr trie_of_bytes_and(const std::vector<std::string>& words) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), words.begin(), words.end());
  return std::make_shared<TokenTrie>(std::move(tokens));
}

TEST(TagLanguageTest, AllowsTheTokensThatCanBePushed) {
  std::mt19937 random(3);
  std::vector<std::string> words;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (size_t length = 2 + random() % 6; length > 0; --length) {
      word += kBytes[random() % kBytes.size()];
    }
    words.push_back(word);
  }
  size_t num_known = 0;
  const TokenTriePtr trie = trie_of_bytes_and(words);
  for (const PlainTags& plain : odd_tags()) {
    const LanguagePtr language = language_of(plain);
    for (int round = 0; round < 20; ++round) {
      const auto matcher = language->begin();
      std::string so_far;
      for (int step = 0; step < 10; ++step) {
        const size_t most = round % 2 == 0 ? ByteMatcher::kNoEnding : random() % 12;
        std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
        const size_t all_from = matcher->allow_tokens(*trie, most, mask);
        if (most == ByteMatcher::kNoEnding && all_from != ByteMatcher::kNoEnding) {
          std::vector<uint32_t> in_time(mask.size());
          matcher->allow_tokens(*trie, all_from, in_time);
          ASSERT_EQ(in_time, mask) << "an end within " << all_from << " after " << so_far;
          ++num_known;
        }
        std::vector<int32_t> all;
        for (int32_t id = 0; id < static_cast<int32_t>(trie->num_tokens()); ++id) {
          const auto copy = matcher->clone();
          const bool is_taken = push_all(*copy, trie->bytes(id));
          ASSERT_EQ(is_allowed(mask, id), is_taken && copy->ending_bytes() <= most)
              << trie->bytes(id) << ", " << most << " after " << so_far << ", tag "
              << plain.tags.front().begin;
          if (is_taken) all.push_back(id);
        }
        if (all.empty()) break;
        const std::string_view token = trie->bytes(all[random() % all.size()]);
        ASSERT_TRUE(push_all(*matcher, token));
        so_far += token;
        matcher->commit();
      }
    }
  }
  EXPECT_GT(num_known, 0U);
}

TEST(TagLanguageTest, ManyTagsShareTheirBegin) {
  TagOptions options{.triggers = {"<tool_call>"}};
  const LanguagePtr inner = make_language(compile_regex("\\{\"x\": [0-9]+\\}"));
  for (int i = 0; i < 128; ++i) {
    options.tags.push_back(
        {"<tool_call>\n{\"name\": \"tool_" + std::to_string(i) + "\", \"arguments\": ", inner,
         "}\n</tool_call>"});
  }
  const LanguagePtr language = make_tags(std::move(options));
  const TokenTriePtr trie =
      trie_of_bytes_and({"<tool_call>", "tool", "_12", "_128", "}}\n", "}}x", "<tool_call>\n{"});
  Constraint constraint(language, trie);
  const auto allows = [&](std::string_view token) {
    std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
    constraint.allow_tokens(Constraint::kAnyNumber, mask);
    const int32_t id = trie->longest(token);
    EXPECT_EQ(trie->bytes(id), token);
    EXPECT_EQ(is_allowed(mask, id), constraint.allows(id));
    return is_allowed(mask, id);
  };
  const auto take = [&](std::string_view text) {
    while (!text.empty()) {
      const int32_t id = trie->longest(text);
      ASSERT_TRUE(allows(trie->bytes(id))) << text;
      ASSERT_TRUE(constraint.accept(id)) << text;
      text.remove_prefix(trie->bytes(id).size());
    }
  };
  EXPECT_TRUE(constraint.can_end());
  EXPECT_TRUE(allows("tool"));
  take("Let me see. <tool_call>");
  EXPECT_FALSE(constraint.can_end());
  EXPECT_FALSE(allows("tool"));
  take("\n{\"name\": \"tool");
  EXPECT_TRUE(allows("_12"));
  EXPECT_FALSE(allows("_128"));
  take("_127\", \"arguments\": {\"x\": 1");
  EXPECT_TRUE(allows("}}\n"));
  EXPECT_FALSE(allows("}}x"));
  EXPECT_EQ(constraint.tokens_to_end(), 10U);  // }}\n </ tool _ c a l l >
  take("}}\n</tool_call>");
  EXPECT_TRUE(constraint.can_end());
  take(" and again <tool_call>\n{\"name\": \"tool_0\", \"arguments\": ");
}

// Each byte can go on in each tag that has begun and begin another one, so there are more ways than
// are followed.
TEST(TagLanguageTest, TakesWhatItAllowsWhereThereAreVeryManyWays) {
  const TokenTriePtr trie = trie_of_bytes_and({"aa", "aaa", "ab<", "<a", "b<aa", "aaaaaaaa"});
  const auto num_tokens = static_cast<int32_t>(trie->num_tokens());
  const LanguagePtr language =
      language_of({.tags = {{"", "a+|b<a*", ""}, {"", "a*b", "<"}}, .min_tags = 90});
  Constraint constraint(language, trie);
  std::mt19937 random(5);
  for (int i = 0; i < 120 && !HasFailure(); ++i) {
    std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
    constraint.allow_tokens(Constraint::kAnyNumber, mask);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < num_tokens; ++id) {
      EXPECT_EQ(is_allowed(mask, id), constraint.allows(id)) << trie->bytes(id);
      if (is_allowed(mask, id)) allowed.push_back(id);
    }
    ASSERT_FALSE(allowed.empty());
    ASSERT_TRUE(constraint.accept(allowed[random() % allowed.size()]));
  }
}

TEST(TagLanguageTest, ErrorsSayWhy) {
  const std::vector<std::pair<PlainTags, std::string>> cases = {
      {{}, "there are no tags"},
      {{.tags = {{"", "a*", ""}}}, "a tag can be empty"},
      {{.tags = {{"a", "a", "a"}}, .triggers = {"b"}}, "no tag begins with the trigger \"b\""},
      {{.tags = {{"a", "a", "a"}, {"b", "b", "b"}}, .triggers = {"a"}},
       "the tag \"b\" begins with no trigger"},
      {{.tags = {{"a", "a", "a"}}, .triggers = {""}}, "a trigger is empty"},
      {{.tags = {{"ab", "a", "a"}, {"b", "", ""}}, .triggers = {"ab", "b"}},
       "the trigger \"ab\" can never be complete: it contains \"b\""},
      {{.tags = {{"a\xFF", "a", "a"}}}, "the begin of a tag is not UTF-8"},
      {{.tags = {{"a", "a", "a"}}, .min_tags = 2, .max_tags = 1}, "at least 2 tags and at most 1"},
      {{.tags = {{"a", "a", "a"}}, .max_tags = 0}, "at most 0 tags"},
      {{.tags = {{"a", "a", "a"}}, .min_tags = 1 << 30}, "tags are 3221225472 bytes at least"},
  };
  for (const auto& [plain, message] : cases) {
    try {
      language_of(plain);
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire::grammar
