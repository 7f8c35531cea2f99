#include "grammar/regex.h"

#include <fmt/format.h>

#include "grammar/nfa.h"
#include "grammar/regex_parser.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxNfaStates = 400'000;

// Makes an Nfa of a tree, from the end to the beginning.
class RegexBuilder {
 public:
  explicit RegexBuilder(Budget& budget) : budget_(budget) {}

  DfaPtr build(const RegexNode& root, RegexMatch match) {
    int32_t end = nfa_.accept();
    if (match == RegexMatch::kWhole) {
      return nfa_.determinise(start_only(compile(root, end)), budget_);
    }
    end = any_bytes(end);
    const int32_t begin = compile(root, end);
    const int32_t search = nfa_.add_state();
    nfa_.add_epsilon(search, Nfa::Epsilon::kAlways, begin);
    nfa_.add_bytes(search, 0x00, 0xFF, search);
    return nfa_.determinise(search, budget_);
  }

 private:
  int32_t start_only(int32_t begin) {
    const int32_t state = nfa_.add_state();
    nfa_.add_epsilon(state, Nfa::Epsilon::kAtStart, begin);
    return state;
  }
  // A state that any text leads to `next` from.
  int32_t any_bytes(int32_t next) {
    const int32_t state = nfa_.add_state();
    nfa_.add_bytes(state, 0x00, 0xFF, state);
    nfa_.add_epsilon(state, Nfa::Epsilon::kAlways, next);
    return state;
  }

  int32_t compile(const RegexNode& node, int32_t next) {
    budget_.step();
    if (nfa_.size() > kMaxNfaStates) {
      throw Error(fmt::format("a regular expression that is too large: more than {} states",
                              kMaxNfaStates));
    }
    switch (node.kind) {
      case RegexNode::Kind::kCharacters:
        return nfa_.add_characters(node.characters, next);
      case RegexNode::Kind::kSequence:
        for (size_t i = node.children.size(); i-- > 0;) next = compile(node.children[i], next);
        return next;
      case RegexNode::Kind::kAlternatives: {
        const int32_t state = nfa_.add_state();
        for (const RegexNode& child : node.children) {
          nfa_.add_epsilon(state, Nfa::Epsilon::kAlways, compile(child, next));
        }
        return state;
      }
      case RegexNode::Kind::kRepeat:
        return compile_repeat(node, next);
      case RegexNode::Kind::kAssertion: {
        const int32_t state = nfa_.add_state();
        nfa_.add_epsilon(state, node.assertion, next);
        return state;
      }
      case RegexNode::Kind::kLookAhead:
        return compile_look_ahead(node, next);
    }
    return next;
  }

  int32_t compile_repeat(const RegexNode& node, int32_t next) {
    const RegexNode& child = node.children.front();
    if (node.max == RegexNode::kNoLimit) {
      const int32_t loop = nfa_.add_state();
      nfa_.add_epsilon(loop, Nfa::Epsilon::kAlways, next);
      ++loops_;
      nfa_.add_epsilon(loop, Nfa::Epsilon::kAlways, compile(child, loop));
      --loops_;
      next = loop;
    } else {
      const int32_t after = next;
      for (int i = node.min; i < node.max; ++i) {
        const int32_t optional = nfa_.add_state();
        nfa_.add_epsilon(optional, Nfa::Epsilon::kAlways, compile(child, next));
        nfa_.add_epsilon(optional, Nfa::Epsilon::kAlways, after);
        next = optional;
      }
    }
    for (int i = 0; i < node.min; ++i) next = compile(child, next);
    return next;
  }

  // What follows, without (or with nothing but) the texts that the look-ahead finds at their
  // beginning.
  int32_t compile_look_ahead(const RegexNode& node, int32_t next) {
    if (loops_ > 0) throw Error(refusal("a look-ahead within a repeat without end"));
    const int32_t sought = compile(node.children.front(), any_bytes(nfa_.accept()));
    for (const int32_t from : {sought, next}) {
      if (nfa_.reaches(from, Nfa::Epsilon::kAtStart)) {
        throw Error(refusal("^ within or after a look-ahead"));
      }
      if (nfa_.reaches(from, Nfa::Epsilon::kAtWordEdge) ||
          nfa_.reaches(from, Nfa::Epsilon::kInsideWord)) {
        throw Error(refusal("\\b within or after a look-ahead"));
      }
    }
    const DfaPtr found = nfa_.determinise(sought, budget_);
    const DfaPtr rest = nfa_.determinise(next, budget_);
    return nfa_.add_dfa(
        *combine(*rest, *found, node.is_negative ? Combine::kFirstOnly : Combine::kBoth, budget_));
  }

  static std::string refusal(std::string_view what) {
    return fmt::format("not a regular expression that can be enforced: {}", what);
  }

  Budget& budget_;
  Nfa nfa_;
  int loops_ = 0;
};

}  // namespace

DfaPtr compile_regex_dfa(std::string_view pattern, RegexMatch match, Budget& budget) {
  return RegexBuilder(budget).build(parse_regex(pattern), match);
}

}  // namespace quire::grammar
