// Filters on any value, and the look-up of filters by name.
#include "chat/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "chat/interpreter.h"
#include "chat/operators.h"

namespace quire::chat_internal {
namespace {

constexpr std::string_view kFilterNames =
    "abs, attr, batch, capitalize, center, count, d, default, dictsort, e, escape, first, float, "
    "forceescape, format, indent, int, items, join, last, length, list, lower, map, max, min, "
    "reject, "
    "rejectattr, replace, reverse, round, safe, select, selectattr, sort, string, sum, title, "
    "tojson, "
    "trim, truncate, unique, upper, wordcount";

Value filter_default(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'default'", args);
  const auto fallback = reader.next("default_value");
  const bool also_false = reader.boolean("boolean", false);
  reader.done();
  if (!subject.is_undefined() && !(also_false && !truthy(subject))) return subject;
  return fallback ? *fallback : make_string(&runtime, "");
}

Value filter_attr(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'attr'", args);
  const std::string name = reader.string("name");
  reader.done();
  // Unlike a dot, this filter does not look for a dictionary's key.
  if (!subject.is(Kind::kDict)) return interpreter.get_attribute(subject, name);
  const auto method = find_method(interpreter, subject, name);
  return method ? *method
                : make_undefined(&runtime, "'dict object' has no attribute '" + name + "'");
}

Value filter_abs(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'abs'", args);
  reader.done();
  if (subject.is(Kind::kFloat)) return Value::number(std::fabs(subject.as_double()));
  if (!subject.is_integer()) reader.fail_type("x", "a number", subject);
  return subject.as_int() < 0 ? negate(runtime, subject) : Value::integer(subject.as_int());
}

Value filter_int(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'int'", args);
  Value fallback = reader.next("default").value_or(Value::integer(0));
  const std::int64_t base = reader.integer("base", 10);
  reader.done();
  if (base != 0 && (base < 2 || base > 36))
    runtime.fail("the base of the filter 'int' is 0 or 2 to 36.");
  if (subject.is_integer()) return Value::integer(subject.as_int());
  if (subject.is(Kind::kFloat)) {
    if (std::isnan(subject.as_double())) return fallback;
    return Value::integer(float_to_int(runtime, subject.as_double()));
  }
  if (subject.is_undefined()) runtime.fail(subject.undefined_reason() + ".");
  if (!subject.is_string()) return fallback;
  runtime.work(subject.text().size());
  if (const auto whole = parse_int(runtime, subject.text(), static_cast<int>(base))) {
    return Value::integer(*whole);
  }
  const auto number = parse_float(subject.text());
  if (!number || !std::isfinite(*number)) return fallback;
  return Value::integer(float_to_int(runtime, *number));
}

Value filter_float(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'float'", args);
  Value fallback = reader.next("default").value_or(Value::number(0));
  reader.done();
  if (subject.is_number()) return Value::number(subject.as_double());
  if (subject.is_undefined()) runtime.fail(subject.undefined_reason() + ".");
  if (!subject.is_string()) return fallback;
  runtime.work(subject.text().size());
  const auto number = parse_float(subject.text());
  return number ? Value::number(*number) : fallback;
}

// round() of a float to `digits` after the point: half to even on the exact binary value, as
// printf.
double round_float(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 22) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  std::array<char, 400> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer.data(), nullptr);
}

Value round_int(Runtime& runtime, std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -18) return Value::integer(0);
  std::int64_t unit = 1;
  for (std::int64_t i = 0; i < -digits; ++i) unit *= 10;
  std::int64_t quotient = value / unit;
  const std::int64_t rest = value % unit;
  const std::int64_t twice_over = std::llabs(rest) - (unit - std::llabs(rest));
  if (twice_over > 0 || (twice_over == 0 && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  std::int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) {
    runtime.fail("the rounded integer does not fit in 64 bits.");
  }
  return Value::integer(result);
}

Value filter_round(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'round'", args);
  const std::int64_t digits = reader.integer("precision", 0);
  const std::string method = reader.string("method", "common");
  reader.done();
  if (method != "common" && method != "ceil" && method != "floor") {
    runtime.fail("the filter 'round' knows the methods 'common', 'ceil' and 'floor'.");
  }
  if (!subject.is_number()) reader.fail_type("value", "a number", subject);
  if (method == "common") {
    return subject.is_integer() ? round_int(runtime, subject.as_int(), digits)
                                : Value::number(round_float(subject.as_double(), digits));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = subject.as_double() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr std::array<std::pair<std::string_view, Filter>, 7> kFilters = {{
    {"default", filter_default},
    {"d", filter_default},
    {"attr", filter_attr},
    {"abs", filter_abs},
    {"int", filter_int},
    {"float", filter_float},
    {"round", filter_round},
}};

}  // namespace

Filter find_value_filter(std::string_view name) {
  const auto found = std::find_if(kFilters.begin(), kFilters.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == kFilters.end() ? nullptr : found->second;
}

Filter find_filter(std::string_view name) {
  for (const auto find : {find_value_filter, find_text_filter, find_list_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

std::string unknown_filter(std::string_view name) {
  return "there is no filter '" + std::string(name.substr(0, 100)) + "'; supported are " +
         std::string(kFilterNames) + ".";
}

}  // namespace quire::chat_internal
