#include "grammar/tokens/next_bytes.h"

namespace quire::grammar {
namespace {

using Bytes = DfaMasks::Bytes;

// Deep chains of rules take a round for each link: beyond these, all bytes may follow.
constexpr int kMaxRounds = 64;

class NextBytes {
 public:
  NextBytes(const ContextFreeTables& tables, Budget& budget)
      : tables_(tables),
        budget_(budget),
        next_(tables.num_spots()),
        first_(static_cast<size_t>(tables.num_rules())),
        follow_(static_cast<size_t>(tables.num_rules())),
        first_of_text_(static_cast<size_t>(tables.num_texts())) {
    for (int32_t text = 0; text < tables.num_texts(); ++text) {
      const Dfa& dfa = tables.dfa(text);
      for (size_t byte = 0; byte < 256; ++byte) {
        first_of_text_[static_cast<size_t>(text)][byte] =
            dfa.step(dfa.start(), static_cast<uint8_t>(byte)) != Dfa::kDead;
      }
    }
  }

  std::vector<Bytes> run() {
    int rounds = 0;
    for (const bool with_follow : {false, true}) {
      for (has_changed_ = true; has_changed_ && rounds < kMaxRounds; ++rounds) {
        has_changed_ = false;
        for (int32_t rule = 0; rule < tables_.num_rules(); ++rule) {
          for (const int32_t begin : tables_.beginnings(rule)) pass(begin, with_follow);
        }
      }
    }
    if (has_changed_) {
      for (Bytes& bytes : next_) bytes.set();
    }
    return std::move(next_);
  }

 private:
  void join(Bytes& into, const Bytes& more) {
    const Bytes joined = into | more;
    has_changed_ |= joined != into;
    into = joined;
  }

  // From the end of a production to its beginning.
  void pass(int32_t begin, bool with_follow) {
    int32_t end = begin;
    while (tables_.spot(end).rule != ContextFreeTables::kEnd) ++end;
    const auto owner = static_cast<size_t>(tables_.spot(begin).owner);
    Bytes behind = with_follow ? follow_[owner] : Bytes();
    for (int32_t i = end; i-- > begin;) {
      budget_.step();
      const ContextFreeTables::Spot& spot = tables_.spot(i);
      if (with_follow) {
        next_[static_cast<size_t>(i)] = behind;
        if (spot.rule >= 0) join(follow_[static_cast<size_t>(spot.rule)], behind);
      }
      const bool can_be_empty =
          spot.rule >= 0 ? spot.can_be_empty
                         : tables_.dfa(spot.text).accepts(tables_.dfa(spot.text).start());
      const Bytes& first = spot.rule >= 0 ? first_[static_cast<size_t>(spot.rule)]
                                          : first_of_text_[static_cast<size_t>(spot.text)];
      behind = can_be_empty ? behind | first : first;
    }
    if (!with_follow) join(first_[owner], behind);
  }

  const ContextFreeTables& tables_;
  Budget& budget_;
  std::vector<Bytes> next_;    // of each spot
  std::vector<Bytes> first_;   // of each rule
  std::vector<Bytes> follow_;  // of each rule
  std::vector<Bytes> first_of_text_;
  bool has_changed_ = true;
};

}  // namespace

std::vector<Bytes> find_next_bytes(const ContextFreeTables& tables, Budget& budget) {
  return NextBytes(tables, budget).run();
}

}  // namespace quire::grammar
