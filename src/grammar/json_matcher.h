#pragma once
// Reads JSON byte by byte and says whether a grammar's root goal is fulfilled.
//
// A value is read once for all goals that it is tested for, its slots. An open array or object is a
// frame of configurations: for each alternative of each slot's goal that can still hold, what it
// still needs. When a value ends, each of its slots is fulfilled or not, and the configurations
// around it that needed an unfulfilled slot are dropped. So acceptance is exact, whatever the goals
// share.
//
// A matcher may be copied, to try what follows. Thread safety: one thread at a time.
#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "grammar/json_grammar.h"
#include "grammar/string_reader.h"

namespace quire::grammar {

class JsonMatcher {
 public:
  static constexpr size_t kMaxDepth = 512;  // of arrays and objects
  static constexpr size_t kMaxNumberBytes = 4096;

  // `grammar` must outlive it.
  explicit JsonMatcher(const JsonGrammar& grammar);

  // Takes a byte; false if no text of the grammar begins like this, as far as configurations tell.
  // After false it stays false.
  bool advance(uint8_t byte);
  // Whether the bytes so far are in the grammar.
  bool can_end() const;

 private:
  enum class Phase : uint8_t {
    kValue,      // before a value
    kFirstItem,  // after [
    kFirstKey,   // after {
    kKey,        // after a comma of an object
    kInKey,
    kColon,
    kInString,
    kInNumber,
    kInLiteral,
    kAfterValue,  // within an array or object
    kDone,
    kFailed
  };
  enum class NumberPhase : uint8_t {
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits
  };
  struct Configuration {
    int slot = 0;
    uint32_t alternative = 0;
    uint64_t missing = 0;  // required members that have not come
    std::array<uint32_t, kMaxWitnesses> witnessed{};
    // Of the item or member that is being read.
    int child_slot = -1;
    uint32_t child_witness = 0;
    auto operator<=>(const Configuration&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Frame {
    bool is_object = false;
    std::vector<int> goals;  // of its slots
    std::vector<Configuration> configurations;
    uint64_t count = 0;  // items or members
    std::unordered_set<std::string> keys;
    bool compares_items = false;
    bool has_repeats = false;
    std::unordered_set<std::string> items;  // canonical, where they are compared
    size_t item_begin = 0;                  // in text_
  };
  struct StringState {
    int slot;
    const StringAlternative* alternative;
    int32_t state;
  };

  const JsonGoal& goal(int number) const { return grammar_->goals[static_cast<size_t>(number)]; }
  const ArrayAlternative& array_of(const Frame& frame, const Configuration& of) const;
  const ObjectAlternative& object_of(const Frame& frame, const Configuration& of) const;

  void take(uint8_t byte);
  void begin_value(uint8_t byte);
  void begin_container(bool is_object);
  void begin_string();
  void begin_number(uint8_t byte);
  void begin_literal(uint8_t byte);
  void take_string(uint8_t byte);
  void end_string();
  void take_number(uint8_t byte);
  bool number_can_end() const;
  std::vector<bool> number_results() const;
  void take_literal(uint8_t byte);
  void take_key(uint8_t byte);
  void end_key();
  void take_after_value(uint8_t byte);
  void begin_item();
  // Adds the configurations that follow from one with a child of one of `goals`.
  void add_children(const Configuration& from, const ChildGoals& goals, const Frame& frame,
                    std::vector<Configuration>& out);
  int slot_of(int goal_number);
  void end_container();
  bool array_holds(const Frame& frame, const Configuration& of) const;
  bool object_holds(const Frame& frame, const Configuration& of) const;
  // Whether everything that can follow `b` can follow `a`, a configuration of the same alternative.
  bool is_as_good(const Frame& frame, const Configuration& a, const Configuration& b) const;
  void keep_the_best(Frame& frame) const;
  void end_value(const std::vector<bool>& results);
  void end_item(Frame& frame);

  const JsonGrammar* grammar_;
  Phase phase_ = Phase::kValue;
  std::vector<int> goals_;  // the slots of the value that comes next
  std::vector<Frame> frames_;
  StringReader string_;
  std::string decoded_;
  std::vector<StringState> string_states_;
  uint64_t length_ = 0;  // of the string, in characters
  std::string key_;
  NumberPhase number_phase_{};
  std::string number_;
  std::string_view literal_;
  size_t literal_at_ = 0;
  bool accepted_ = false;
  std::string text_;  // since the first item that is compared
  int num_comparing_ = 0;
};

}  // namespace quire::grammar
