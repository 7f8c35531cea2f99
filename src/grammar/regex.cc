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
  RegexBuilder(Budget& budget, ScratchMemory& memory) : budget_(budget), memory_(memory) {}

  DfaPtr build(const RegexNode& root, RegexMatch match) {
    int32_t end = nfa_.accept();
    if (match == RegexMatch::kWhole) {
      return nfa_.determinise(start_only(compile(root, end)), budget_);
    }
    end = any_text(end);
    const int32_t begin = compile(root, end);
    return nfa_.determinise(any_text(begin), budget_);
  }

 private:
  int32_t start_only(int32_t begin) {
    const int32_t state = nfa_.add_state();
    nfa_.add_epsilon(state, Nfa::Epsilon::kAtStart, begin);
    return state;
  }
  // A state that any text leads to `next` from: by whole characters, as `next` may look at what
  // is around it.
  int32_t any_text(int32_t next) {
    const int32_t state = nfa_.add_state();
    nfa_.add_epsilon(state, Nfa::Epsilon::kAlways, nfa_.add_characters({{0, 0x10FFFF}}, state));
    nfa_.add_epsilon(state, Nfa::Epsilon::kAlways, next);
    return state;
  }

  int32_t compile(const RegexNode& node, int32_t next) {
    budget_.step();
    count_states();
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
    budget_.check_time();  // as each of them looks at all that follows
    const int32_t sought = compile(node.children.front(), any_text(nfa_.accept()));
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
        *combine(*rest, *found, node.is_negative ? Combine::kFirstOnly : Combine::kBoth, budget_),
        nfa_.accept());
  }

  static std::string refusal(std::string_view what) {
    return fmt::format("not a regular expression that can be enforced: {}", what);
  }

  void count_states() {
    memory_.take((nfa_.size() - counted_) * Nfa::kStateBytes);
    counted_ = nfa_.size();
  }

  Budget& budget_;
  ScratchMemory& memory_;
  Nfa nfa_;
  size_t counted_ = 0;  // states, in memory_
  int loops_ = 0;
};

}  // namespace

DfaPtr compile_regex_dfa(std::string_view pattern, RegexMatch match, Budget& budget) {
  const size_t limit = budget.limits().regex_bytes;
  if (pattern.size() > limit) {
    throw Error(fmt::format("a regular expression of {} bytes; at most {} are taken",
                            pattern.size(), limit));
  }
  ScratchMemory memory(budget);
  const RegexNode root = parse_regex(pattern, memory);
  return RegexBuilder(budget, memory).build(root, match);
}

}  // namespace quire::grammar
