// The tests after "is".
#include <algorithm>
#include <array>
#include <utility>

#include "chat/builtins.h"
#include "chat/interpreter.h"
#include "chat/operators.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

constexpr std::string_view kTestNames =
    "boolean, callable, defined, divisibleby, eq, equalto, escaped, even, false, filter, float, "
    "ge, gt, "
    "greaterthan, in, integer, iterable, le, lessthan, lower, lt, mapping, ne, none, number, odd, "
    "sameas, sequence, string, test, true, undefined, upper";

// The one argument of a test like "divisibleby".
Value argument(Interpreter& interpreter, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "this test", args);
  Value value = reader.required("other");
  reader.done();
  return value;
}

template <Kind kind>
bool is_kind(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is(kind);
}

bool is_defined(Interpreter&, const Value& subject, CallArgs&) {
  return !subject.is_undefined();
}
bool is_number(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is_number();
}
bool is_true(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is(Kind::kBool) && subject.as_int() != 0;
}
bool is_false(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is(Kind::kBool) && subject.as_int() == 0;
}
bool is_escaped(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is_markup();
}

bool is_sequence(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is_string() || subject.is_sequence() || subject.is(Kind::kDict) ||
         subject.is(Kind::kRange) || subject.is_undefined();
}

bool is_iterable(Interpreter&, const Value& subject, CallArgs&) {
  switch (subject.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

bool is_callable(Interpreter&, const Value& subject, CallArgs&) {
  // An undefined value has a __call__, though it only raises.
  return subject.is(Kind::kFunction) || subject.is_undefined() ||
         (subject.is(Kind::kObject) && subject.attributes().type_name() == "LoopContext");
}

Value remainder(Interpreter& interpreter, const Value& subject, const Value& by) {
  return binary(interpreter, "%", subject, by);
}

bool is_odd(Interpreter& interpreter, const Value& subject, CallArgs&) {
  return equal(interpreter.runtime(), remainder(interpreter, subject, Value::integer(2)),
               Value::integer(1));
}
bool is_even(Interpreter& interpreter, const Value& subject, CallArgs&) {
  return equal(interpreter.runtime(), remainder(interpreter, subject, Value::integer(2)),
               Value::integer(0));
}
bool is_divisible(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return equal(interpreter.runtime(), remainder(interpreter, subject, argument(interpreter, args)),
               Value::integer(0));
}

// str.islower() and str.isupper(): some letter has case, and none the other one.
bool has_only(const std::string& text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool some = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    if (other(c)) return false;
    some = some || wanted(c);
  }
  return some;
}

bool is_lower_case(Interpreter& interpreter, const Value& subject, CallArgs&) {
  return has_only(to_text(interpreter.runtime(), subject).text(), is_lower, is_upper);
}
bool is_upper_case(Interpreter& interpreter, const Value& subject, CallArgs&) {
  return has_only(to_text(interpreter.runtime(), subject).text(), is_upper, is_lower);
}

bool is_equal(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return equal(interpreter.runtime(), subject, argument(interpreter, args));
}
bool is_not_equal(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return !equal(interpreter.runtime(), subject, argument(interpreter, args));
}
bool is_less(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return less(interpreter.runtime(), subject, argument(interpreter, args));
}
bool is_greater(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return less(interpreter.runtime(), argument(interpreter, args), subject);
}
bool is_less_equal(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return !less(interpreter.runtime(), argument(interpreter, args), subject);
}
bool is_greater_equal(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return !less(interpreter.runtime(), subject, argument(interpreter, args));
}

bool is_in(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return contains(interpreter.runtime(), argument(interpreter, args), subject);
}

bool is_same(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  const Value other = argument(interpreter, args);
  if (subject.kind() != other.kind()) return false;
  if (subject.object() != nullptr) return subject.object() == other.object();
  return equal(interpreter.runtime(), subject, other);
}

bool is_filter(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is_string() && find_filter(subject.text()) != nullptr;
}
bool is_test(Interpreter&, const Value& subject, CallArgs&) {
  return subject.is_string() && find_test(subject.text()) != nullptr;
}

constexpr std::array<std::pair<std::string_view, Test>, 39> kTests = {{
    {"defined", is_defined},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"boolean", is_kind<Kind::kBool>},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"number", is_number},
    {"true", is_true},
    {"false", is_false},
    {"escaped", is_escaped},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", is_callable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"lower", is_lower_case},
    {"upper", is_upper_case},
    {"==", is_equal},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"!=", is_not_equal},
    {"ne", is_not_equal},
    {"<", is_less},
    {"lt", is_less},
    {"lessthan", is_less},
    {">", is_greater},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {"<=", is_less_equal},
    {"le", is_less_equal},
    {">=", is_greater_equal},
    {"ge", is_greater_equal},
    {"in", is_in},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
}};

}  // namespace

Test find_test(std::string_view name) {
  const auto found = std::find_if(kTests.begin(), kTests.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == kTests.end() ? nullptr : found->second;
}

std::string unknown_test(std::string_view name) {
  return "there is no test '" + std::string(name.substr(0, 100)) + "'; supported are " +
         std::string(kTestNames) + ".";
}

}  // namespace quire::chat_internal
