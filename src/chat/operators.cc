#include "chat/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "chat/builtins.h"
#include "chat/interpreter.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

[[noreturn]] void fail_operands(Runtime& runtime, std::string_view op, const Value& left,
                                const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) runtime.fail(value->undefined_reason() + ".");
  }
  runtime.fail("the operator '" + std::string(op) + "' does not take a " +
               std::string(type_name(left)) + " and a " + std::string(type_name(right)) + ".");
}

[[noreturn]] void fail_overflow(Runtime& runtime, std::string_view op) {
  runtime.fail("the result of '" + std::string(op) + "' does not fit in a 64-bit integer.");
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// CPython's float_divmod.
std::pair<double, double> float_divmod(double a, double b) {
  double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      quotient -= 1;
    }
  } else {
    mod = std::copysign(0.0, b);
  }
  double whole = std::copysign(0.0, a / b);
  if (quotient != 0) {
    whole = std::floor(quotient);
    if (quotient - whole > 0.5) whole += 1;
  }
  return {whole, mod};
}

Value int_power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      fail_overflow(runtime, "**");
    }
    exponent >>= 1;
    if (exponent == 0) return Value::integer(result);
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow(runtime, "**");
  }
}

Value power(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer() && right.as_int() >= 0) {
    return int_power(runtime, left.as_int(), right.as_int());
  }
  const double base = left.as_double();
  const double exponent = right.as_double();
  if (base == 0 && exponent < 0) runtime.fail("0 cannot be raised to a negative power.");
  if (base < 0 && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    runtime.fail(
        "a negative number raised to a fraction is a complex number, which templates lack.");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    runtime.fail("the result of '**' is too large for a float.");
  }
  return Value::number(result);
}

Value int_arithmetic(Runtime& runtime, char op, std::string_view name, std::int64_t a,
                     std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case '%':
      result = b == -1 ? 0 : a - floor_divide(a, b) * b;
      break;
    default:  // floor division
      overflow = a == INT64_MIN && b == -1;
      if (!overflow) result = floor_divide(a, b);
  }
  if (overflow) fail_overflow(runtime, name);
  return Value::integer(result);
}

Value float_arithmetic(char op, double a, double b) {
  switch (op) {
    case '+':
      return Value::number(a + b);
    case '-':
      return Value::number(a - b);
    case '*':
      return Value::number(a * b);
    case '%':
      return Value::number(float_divmod(a, b).second);
    default:
      return Value::number(float_divmod(a, b).first);
  }
}

Value arithmetic(Runtime& runtime, std::string_view op, const Value& left, const Value& right) {
  if (op == "**") return power(runtime, left, right);
  if ((op == "/" || op == "//" || op == "%") && right.as_double() == 0) {
    runtime.fail("division by zero.");
  }
  if (op == "/") return Value::number(left.as_double() / right.as_double());
  const char kind = op == "//" ? 'd' : op[0];
  return left.is_integer() && right.is_integer()
             ? int_arithmetic(runtime, kind, op, left.as_int(), right.as_int())
             : float_arithmetic(kind, left.as_double(), right.as_double());
}

// How often `count` says to repeat, where the result has `size` each time; checked before it is
// made.
std::size_t repeats(std::int64_t count, std::size_t size, std::size_t limit) {
  if (count <= 0 || size == 0) return 0;
  return std::min(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(limit / size + 1));
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t count) {
  if (value.is_string()) {
    const MarkedText& text = value.marked_text();
    const std::size_t times = repeats(count, text.size(), runtime.limits().max_string_bytes);
    runtime.check_string(times * text.size());
    if (text.is_marked()) {
      TextBuilder out(runtime);
      for (std::size_t i = 0; i < times; ++i) out.append(text);
      return make_string(&runtime, out.release(), value.is_markup());
    }
    std::string out = times > 0 ? text.text() : "";
    out.reserve(times * text.size());
    while (out.size() < times * text.size()) {
      out.append(out, 0, times * text.size() - out.size());  // twice as long, or all that is left
    }
    return make_string(&runtime, std::move(out), value.is_markup());
  }
  const Items& items = value.items();
  const std::size_t times = repeats(count, items.size(), runtime.limits().max_list_items);
  runtime.check_items(times * items.size());
  Items out;
  out.reserve(times * items.size());
  for (std::size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return value.is(Kind::kList) ? make_list(&runtime, std::move(out))
                               : make_tuple(&runtime, std::move(out));
}

Value join_strings(Runtime& runtime, const Value& left, const Value& right) {
  const bool markup = left.is_markup() || right.is_markup();
  runtime.check_string(left.text().size() + right.text().size());
  MarkedText out;
  for (const Value* part : {&left, &right}) {
    const MarkedText& text = part->marked_text();
    if (markup && !part->is_markup()) {
      out.append(MarkedText(escape_html(text.text()), text.is_marked()));
    } else {
      out.append(text);
    }
  }
  return make_string(&runtime, std::move(out), markup);
}

std::optional<Value> add_sequences(Runtime& runtime, const Value& left, const Value& right) {
  if (left.kind() != right.kind() || !left.is_sequence()) return std::nullopt;
  runtime.check_items(left.items().size() + right.items().size());
  Items out = left.items();
  out.insert(out.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kList) ? make_list(&runtime, std::move(out))
                              : make_tuple(&runtime, std::move(out));
}

// The positions that a slice takes from a sequence of `length`, as Python's slice.indices().
struct SliceRange {
  std::int64_t start = 0, step = 1, count = 0;
};

std::optional<SliceRange> resolve_slice(Runtime& runtime, const SliceObject& slice,
                                        std::int64_t length) {
  for (const Value* part : {&slice.start, &slice.stop, &slice.step}) {
    if (!part->is_none() && !part->is_integer()) return std::nullopt;
  }
  SliceRange range;
  range.step = slice.step.is_none() ? 1 : slice.step.as_int();
  if (range.step == 0) runtime.fail("the step of a slice must not be 0.");
  range.step = std::max(range.step, -INT64_MAX);
  const bool down = range.step < 0;
  const auto clamp = [&](const Value& part, std::int64_t fallback) {
    if (part.is_none()) return fallback;
    std::int64_t at = part.as_int();
    if (at < 0) at = std::max(at, -length - 1) + length;
    return std::clamp<std::int64_t>(at, down ? -1 : 0, down ? length - 1 : length);
  };
  range.start = clamp(slice.start, down ? length - 1 : 0);
  const std::int64_t stop = clamp(slice.stop, down ? -1 : length);
  if (down && range.start > stop) range.count = (range.start - stop - 1) / -range.step + 1;
  if (!down && range.start < stop) range.count = (stop - range.start - 1) / range.step + 1;
  return range;
}

Value slice_text(Runtime& runtime, const Value& value, const SliceRange& range) {
  const std::string& text = value.text();
  runtime.work(text.size());
  if (range.count == 0) return make_string(&runtime, "", value.is_markup());
  const auto start = static_cast<std::size_t>(range.start);
  const auto count = static_cast<std::size_t>(range.count);
  const bool ascii = is_ascii(text);
  if (range.step == 1) {
    const std::size_t from = ascii ? start : byte_offset(text, start);
    const std::size_t size =
        ascii ? count : byte_offset(std::string_view(text).substr(from), count);
    return make_string(&runtime, value.marked_text().part(from, size), value.is_markup());
  }
  std::vector<std::uint32_t> offsets;  // of the code points
  if (!ascii) {
    for (std::size_t pos = 0; pos < text.size();
         pos += utf8_length(static_cast<unsigned char>(text[pos]))) {
      offsets.push_back(static_cast<std::uint32_t>(pos));
    }
  }
  MarkedText out;
  std::int64_t at = range.start;
  for (std::size_t i = 0; i < count; ++i, at += i < count ? range.step : 0) {
    const std::size_t pos =
        ascii ? static_cast<std::size_t>(at) : offsets[static_cast<std::size_t>(at)];
    out.append(value.marked_text(), pos, utf8_length(static_cast<unsigned char>(text[pos])));
  }
  return make_string(&runtime, std::move(out), value.is_markup());
}

std::optional<Value> get_slice(Runtime& runtime, const Value& object, const SliceObject& slice) {
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) return std::nullopt;
  const auto size = static_cast<std::int64_t>(*length(object));
  const auto range = resolve_slice(runtime, slice, size);
  if (!range) return std::nullopt;
  if (object.is_string()) return slice_text(runtime, object, *range);
  const Items items = object.is(Kind::kRange) ? to_items(runtime, object) : Items();
  const Items& from = object.is(Kind::kRange) ? items : object.items();
  Items out;
  out.reserve(static_cast<std::size_t>(range->count));
  std::int64_t at = range->start;
  for (std::int64_t i = 0; i < range->count; ++i, at += i < range->count ? range->step : 0) {
    out.push_back(from[static_cast<std::size_t>(at)]);
  }
  return object.is(Kind::kTuple) ? make_tuple(&runtime, std::move(out))
                                 : make_list(&runtime, std::move(out));
}

std::optional<Value> get_at(Runtime& runtime, const Value& object, std::int64_t index) {
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) return std::nullopt;
  if (object.is_string()) runtime.work(object.text().size());
  const auto size = static_cast<std::int64_t>(*length(object));
  if (index < -size || index >= size) return std::nullopt;
  if (index < 0) index += size;
  if (object.is(Kind::kRange))
    return Value::integer(object.range().start + index * object.range().step);
  if (object.is_sequence()) return object.items()[static_cast<std::size_t>(index)];
  const std::string& text = object.text();
  const std::size_t pos = byte_offset(text, static_cast<std::size_t>(index));
  const std::size_t bytes = utf8_length(static_cast<unsigned char>(text[pos]));
  return make_string(&runtime, object.marked_text().part(pos, bytes), object.is_markup());
}

}  // namespace

Value binary(Interpreter& interpreter, std::string_view op, const Value& left, const Value& right) {
  Runtime& runtime = interpreter.runtime();
  if (left.is_number() && right.is_number()) return arithmetic(runtime, op, left, right);
  if (op == "+") {
    if (left.is_string() && right.is_string()) return join_strings(runtime, left, right);
    if (auto joined = add_sequences(runtime, left, right)) return *joined;
  } else if (op == "*") {
    if ((left.is_string() || left.is_sequence()) && right.is_integer()) {
      return repeat(runtime, left, right.as_int());
    }
    if ((right.is_string() || right.is_sequence()) && left.is_integer()) {
      return repeat(runtime, right, left.as_int());
    }
  } else if (op == "%" && left.is_string()) {
    return make_string(&runtime, format_percent(interpreter, left.marked_text(), right));
  }
  fail_operands(runtime, op, left, right);
}

Value negate(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kFloat)) return Value::number(-value.as_double());
  if (value.is_integer()) {
    if (value.as_int() == INT64_MIN) fail_overflow(runtime, "-");
    return Value::integer(-value.as_int());
  }
  if (value.is_undefined()) runtime.fail(value.undefined_reason() + ".");
  runtime.fail("the operator '-' does not take a " + std::string(type_name(value)) + ".");
}

Value positive(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kFloat)) return value;
  if (value.is_integer()) return Value::integer(value.as_int());
  if (value.is_undefined()) runtime.fail(value.undefined_reason() + ".");
  runtime.fail("the operator '+' does not take a " + std::string(type_name(value)) + ".");
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        if (item.is_undefined()) runtime.fail(item.undefined_reason() + ".");
        runtime.fail("only a string can be 'in' a string, not a " + std::string(type_name(item)) +
                     ".");
      }
      runtime.work(container.text().size());
      return find_first(container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      if (!is_hashable(runtime, item)) {
        runtime.fail("a " + std::string(type_name(item)) + " cannot be a dictionary's key.");
      }
      runtime.step(1 + container.dict().entries.size() / 16);
      return container.dict().find(item) != nullptr;
    default: {
      bool found = false;
      for_each(runtime, container, [&](const Value& candidate) {
        found = equal(runtime, candidate, item);
        return !found;
      });
      return found;
    }
  }
}

std::optional<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (!is_hashable(runtime, key)) return std::nullopt;
    runtime.step(1 + object.dict().entries.size() / 16);
    const Value* found = object.dict().find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (key.is(Kind::kSlice)) return get_slice(runtime, object, key.slice());
  if (key.is_integer()) return get_at(runtime, object, key.as_int());
  return std::nullopt;
}

}  // namespace quire::chat_internal
