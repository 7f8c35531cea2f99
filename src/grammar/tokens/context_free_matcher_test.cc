#include "grammar/tokens/context_free_matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>

#include "grammar/gbnf.h"
#include "grammar/tokens/constraint.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

// For slow builds.
CompileLimits no_hurry() {
  CompileLimits limits;
  limits.time = std::chrono::minutes(5);
  return limits;
}

struct RulesOfText {
  explicit RulesOfText(std::string_view text, bool makes_tables = true) : budget(no_hurry()) {
    grammar = parse_gbnf(text, budget);
    if (makes_tables) tables.emplace(grammar, budget);
  }
  Budget budget;
  ContextFreeGrammar grammar;
  std::optional<ContextFreeTables> tables;
};

// Recursion on all sides, rules and symbols that can be empty, circles of rules, ambiguity.
const std::vector<std::string>& odd_grammars() {
  static const std::vector<std::string> grammars = {
      "root ::= \"(\" root \")\" root |",
      "root ::= sum\nsum ::= sum \"+\" term | term\nterm ::= term \"*\" [0-9] | [0-9] | \"(\" sum "
      "\")\"",
      "root ::= a a a\na ::= b? \"\"\nb ::= \"x\"",
      "root ::= root root | \"a\" | \"bb\" |",
      "root ::= [^\"\\n]{2,3} \".\"*",
      "root ::= x \"a\" | \"ab\" | y\nx ::= x x\ny ::= z \"cd\" | \"c\" y\nz ::= y | z | root "
      "\"b\" |",
      "root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?",
      "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | [a-b]+ | \"\\\"\" [^\"]* "
      "\"\\\"\"",
      "root ::= e e e\ne ::= f | \"\"\nf ::= e \"a\" | e",
      "root ::= \"a\" b\nb ::= c | \"\"\nc ::= \"a\" b \"bcd\" | \"(\" root",
  };
  return grammars;
}

size_t shortest_by_search(const EarleyMatcher& from, std::string_view alphabet, size_t most) {
  std::vector<EarleyMatcher> open = {from};
  for (size_t length = 0; length <= most; ++length) {
    std::vector<EarleyMatcher> next;
    for (const EarleyMatcher& matcher : open) {
      if (matcher.can_end()) return length;
      for (const char c : alphabet) {
        next.push_back(matcher);
        if (!next.back().advance(static_cast<uint8_t>(c))) next.pop_back();
      }
    }
    open = std::move(next);
  }
  return most + 1;
}

TEST(ContextFreeMatcherTest, FollowsTheTextsThatEarleysMatcherReads) {
  constexpr std::string_view kAlphabet = "ab()[],+*1x.cd\"\n";
  std::mt19937 random(7);
  for (const std::string& text : odd_grammars()) {
    const RulesOfText rules(text);
    for (int round = 0; round < 12; ++round) {
      ContextFreeMatcher matcher(*rules.tables);
      std::vector<EarleyMatcher> plain = {EarleyMatcher(rules.grammar)};
      size_t committed = 1;
      for (int step = 0; step < 40; ++step) {
        const auto byte = static_cast<uint8_t>(kAlphabet[random() % kAlphabet.size()]);
        EarleyMatcher next = plain.back();
        const bool is_taken = next.advance(byte);
        ASSERT_EQ(matcher.push(byte), is_taken) << text << ", round " << round << ", " << step;
        if (is_taken) plain.push_back(std::move(next));
        if (random() % 8 == 0) {
          const size_t count = random() % (plain.size() - committed + 1);
          matcher.pop(count);
          plain.erase(plain.end() - static_cast<std::ptrdiff_t>(count), plain.end());
        }
        if (random() % 8 == 0) {
          matcher.commit();
          committed = plain.size();
        }
        ASSERT_EQ(matcher.can_end(), plain.back().can_end());
        EarleyMatcher ended = plain.back();
        const std::string ending = matcher.ending();
        for (const char c : ending) ASSERT_TRUE(ended.advance(static_cast<uint8_t>(c))) << text;
        ASSERT_TRUE(ended.can_end()) << text << ": " << ending;
        ASSERT_EQ(matcher.ending_bytes(), ending.size()) << text << ": " << ending;
        if (ending.size() < 3) {
          ASSERT_EQ(ending.size(), shortest_by_search(plain.back(), kAlphabet, 2)) << text;
        }
        bool goes_on = false;
        for (const char c : kAlphabet) {
          if (!matcher.push(static_cast<uint8_t>(c))) continue;
          goes_on = true;
          matcher.pop(1);
        }
        ASSERT_EQ(matcher.must_end(), matcher.can_end() && !goes_on) << text;
      }
    }
  }
}

TEST(ContextFreeMatcherTest, AllowsTheTokensThatCanBePushed) {
  constexpr std::string_view kAlphabet = "ab()[],+*1x.cd\"";
  std::mt19937 random(5);
  std::vector<std::string> tokens;
  for (const char c : kAlphabet) tokens.emplace_back(1, c);
  for (int i = 0; i < 400; ++i) {
    std::string token;
    for (size_t length = 2 + random() % 4; length > 0; --length) {
      token += kAlphabet[random() % (i % 2 == 0 ? kAlphabet.size() : 6)];
    }
    tokens.push_back(token);
  }
  const TokenTrie trie(tokens);
  for (const std::string& text : odd_grammars()) {
    const RulesOfText rules(text);
    for (int round = 0; round < 12; ++round) {
      ContextFreeMatcher matcher(*rules.tables);
      for (int step = 0; step < 12; ++step) {
        const size_t most = round % 2 == 0 ? ByteMatcher::kNoEnding : random() % 8;
        std::vector<uint32_t> mask(mask_words(trie.num_tokens()));
        const size_t all_from = matcher.allow_tokens(trie, most, mask);
        if (most == ByteMatcher::kNoEnding && all_from != ByteMatcher::kNoEnding) {
          std::vector<uint32_t> in_time(mask.size());
          matcher.allow_tokens(trie, all_from, in_time);
          ASSERT_EQ(in_time, mask) << text << ": an end within " << all_from;
        }
        std::vector<int32_t> all;
        for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
          size_t taken = 0;
          const std::string_view token = trie.bytes(id);
          while (taken < token.size() && matcher.push(static_cast<uint8_t>(token[taken]))) ++taken;
          const bool is_taken = taken == token.size();
          ASSERT_EQ(is_allowed(mask, id), is_taken && matcher.ending_bytes() <= most)
              << text << ": " << token << ", " << most;
          matcher.pop(taken);
          if (is_taken) all.push_back(id);
        }
        if (all.empty()) break;
        for (const char c : trie.bytes(all[random() % all.size()])) {
          matcher.push(static_cast<uint8_t>(c));
        }
        matcher.commit();
      }
    }
  }
}

TEST(ContextFreeMatcherTest, RegularRulesBecomeAutomata) {
  const auto is_text = [](const std::string& text) {
    return RulesOfText(text, false).grammar.text() != nullptr;
  };
  EXPECT_TRUE(
      is_text("root ::= (\"a\" | b)+ c\nb ::= [0-9] b | \"\"\nc ::= c \"x\" | [yz]{2,300}"));
  EXPECT_FALSE(is_text("root ::= \"(\" root \")\" | \"a\""));
  EXPECT_FALSE(is_text("root ::= (\"a\" | \"b\")* \"a\" (\"a\" | \"b\"){30}"));
  const RulesOfText rules("root ::= \"(\" root \")\" | word (\",\" word)*\nword ::= [a-z]+");
  EXPECT_EQ(rules.tables->num_texts(), 4);  // ( ) word and (, word)*
}

TEST(ContextFreeMatcherTest, LongTextsTakeTheirNestingInMemory) {
  const RulesOfText rules("root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | [a-z]+");
  ContextFreeMatcher matcher(*rules.tables);
  const auto take = [&](std::string_view text) {
    for (const char c : text) ASSERT_TRUE(matcher.push(static_cast<uint8_t>(c)));
    matcher.commit();
  };
  take("[[");
  for (int i = 0; i < 10'000; ++i) take("abc,[x,y],");
  EXPECT_LT(matcher.num_places(), 200U);
  EXPECT_EQ(matcher.ending(), "a]]");
  const std::unique_ptr<ByteMatcher> copy = matcher.clone();
  take("a]]");
  EXPECT_TRUE(matcher.can_end());
  EXPECT_TRUE(matcher.must_end());
  EXPECT_EQ(copy->ending(), "a]]");
}

TEST(ContextFreeMatcherTest, BehindTheLimitsOnlyTheEndingGoesOn) {
  const RulesOfText rules("root ::= \"<\" all \">\"\nall ::= all all | \"a\" | \"b\"");
  ContextFreeMatcher matcher(*rules.tables);
  ASSERT_TRUE(matcher.push('<'));
  int length = 0;
  while (matcher.push('a')) {
    if (++length % 3 == 0) matcher.commit();
    ASSERT_LT(length, 10'000);
  }
  EXPECT_GT(length, 50);
  EXPECT_EQ(matcher.ending(), ">");
  EXPECT_FALSE(matcher.push('b'));
  ASSERT_TRUE(matcher.push('>'));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_TRUE(matcher.must_end());
  matcher.pop(1);
  EXPECT_FALSE(matcher.can_end());
  EXPECT_EQ(matcher.ending(), ">");
  matcher.commit();
  ASSERT_TRUE(matcher.push('>'));
  matcher.commit();
  EXPECT_TRUE(matcher.must_end());
  EXPECT_FALSE(matcher.push('>'));
  EXPECT_EQ(matcher.ending(), "");
}

// Words may be cut anywhere, so each byte takes more steps than the one before it.
TEST(ContextFreeMatcherTest, TakesWhatItAllowsAtTheLimits) {
  std::vector<std::string> tokens;
  for (const char c : std::string_view("<>abcdefghij")) tokens.emplace_back(1, c);
  for (const size_t length : {2, 3, 5, 8, 13, 21}) tokens.push_back(std::string(length, 'a'));
  for (const char* word : {"ab", "abcdef", "ba>", "cc><", "aaaaaaaa>"}) {
    tokens.emplace_back(word);
  }
  const auto trie = std::make_shared<TokenTrie>(tokens);
  const LanguagePtr language =
      make_language(compile_gbnf("root ::= \"<\" all \">\"\nall ::= all all | word\nword ::= "
                                 "[a-e]+ | [d-j]"));
  std::mt19937 random(3);
  for (int round = 0; round < 2; ++round) {
    Constraint constraint(language, trie);
    size_t num_bytes = 0;
    // The second round follows a way to an end that was looked for before.
    size_t tokens_left = SIZE_MAX;
    while (!constraint.must_end()) {
      ASSERT_LT(num_bytes, 10'000U);
      std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
      constraint.allow_tokens(Constraint::kAnyNumber, mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
        // A mask may lack tokens at the limit of its own steps.
        if (num_bytes < 40 || is_allowed(mask, id)) {
          ASSERT_EQ(is_allowed(mask, id), constraint.allows(id))
              << trie->bytes(id) << " behind " << num_bytes << " bytes";
        }
        if (is_allowed(mask, id) && !tokens[static_cast<size_t>(id)].ends_with('>')) {
          allowed.push_back(id);
        }
      }
      const size_t to_end = constraint.tokens_to_end();
      ASSERT_LE(to_end, tokens_left);
      if (allowed.empty() || (round == 1 && num_bytes > 100)) {
        tokens_left = to_end - 1;
        std::ranges::fill(mask, 0);
        constraint.allow_tokens(to_end, mask);
        allowed.clear();
        for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
          if (is_allowed(mask, id)) allowed.push_back(id);
        }
      }
      ASSERT_FALSE(allowed.empty());
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(constraint.accept(token)) << trie->bytes(token);
      num_bytes += trie->bytes(token).size();
    }
    EXPECT_TRUE(constraint.can_end());
    EXPECT_GT(num_bytes, 60U);
  }
}

TEST(ContextFreeMatcherTest, ShortestTextsAreShort) {
  std::string doubling = "root ::= a0 | \"x\"\n";
  for (int i = 0; i < 40; ++i) doubling += fmt::format("a{} ::= a{} a{}\n", i, i + 1, i + 1);
  doubling += "a40 ::= \"a\"\n";
  try {
    const RulesOfText rules(doubling);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is longer than 1048576 bytes"), std::string::npos)
        << error.what();
  }
}

TEST(ContextFreeMatcherTest, ConstrainsTokens) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"((", "))", ")(", "())", "()()", "x"}) tokens.emplace_back(word);
  const auto trie = std::make_shared<TokenTrie>(tokens);
  Constraint constraint(make_language(compile_gbnf("root ::= (\"(\" root \")\")*")), trie);
  const auto allowed = [&](size_t tokens_left) {
    std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
    constraint.allow_tokens(tokens_left, mask);
    std::vector<std::string> texts;
    for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
      if (is_allowed(mask, id)) texts.push_back(tokens[static_cast<size_t>(id)]);
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(allowed(Constraint::kAnyNumber), (Texts{"(", "((", "()()"}));
  EXPECT_EQ(allowed(2), (Texts{"(", "()()"}));
  ASSERT_TRUE(constraint.accept(256));
  EXPECT_EQ(allowed(Constraint::kAnyNumber), (Texts{"(", ")", "((", "))", ")(", "())", "()()"}));
  EXPECT_EQ(constraint.tokens_to_end(), 1U);
  EXPECT_EQ(allowed(1), Texts{"))"});
}

}  // namespace
}  // namespace quire::grammar
