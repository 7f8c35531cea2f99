// What templates ask about values, with Python's answers: type, truth, order, length, items.
#include <algorithm>
#include <cmath>
#include <compare>

#include "chat/text.h"
#include "chat/value.h"

namespace quire::chat_internal {

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      switch (value.view().kind) {
        case ViewKind::kKeys:
          return "dict_keys";
        case ViewKind::kValues:
          return "dict_values";
        case ViewKind::kItems:
          return "dict_items";
      }
      return "dict_view";
    case Kind::kIterator:
      return "generator";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kObject:
      return value.attributes().type_name();
    case Kind::kSlice:
      return "slice";
  }
  return "object";
}

bool is_hashable(Runtime& runtime, const Value& value) {
  runtime.step();
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kSlice:
      return false;
    case Kind::kString:
      runtime.work(value.text().size());
      return true;
    case Kind::kTuple:
      return std::all_of(value.items().begin(), value.items().end(),
                         [&](const Value& item) { return is_hashable(runtime, item); });
    default:
      return true;
  }
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    default:
      return length(value).value_or(1) != 0;
  }
}

namespace {

std::partial_ordering reversed(std::partial_ordering order) {
  if (std::is_lt(order)) return std::partial_ordering::greater;
  return std::is_gt(order) ? std::partial_ordering::less : order;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.as_int() <=> b.as_int();
  if (!a.is_integer() && !b.is_integer()) return a.as_double() <=> b.as_double();
  if (b.is_integer()) return reversed(compare_numbers(b, a));
  const double number = b.as_double();
  if (std::isnan(number)) return std::partial_ordering::unordered;
  // 2^63: beyond it every float is beyond every int.
  constexpr double kEdge = 9223372036854775808.0;
  if (number >= kEdge) return std::partial_ordering::less;
  if (number < -kEdge) return std::partial_ordering::greater;
  const double whole = std::floor(number);
  const auto order = a.as_int() <=> static_cast<std::int64_t>(whole);
  if (std::is_neq(order)) return order;
  return whole < number ? std::partial_ordering::less : std::partial_ordering::equivalent;
}

namespace {

bool equal_items(Runtime& runtime, const Items& a, const Items& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](const Value& x, const Value& y) { return equal(runtime, x, y); });
}

bool equal_dicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
           const Value* other = b.find(entry.first);
           return other != nullptr && equal(runtime, entry.second, *other);
         });
}

}  // namespace

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (a.is_number() && b.is_number()) return std::is_eq(compare_numbers(a, b));
  if (a.kind() != b.kind()) return false;
  const Runtime::Level level(runtime);
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.work(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(runtime, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(runtime, a.dict(), b.dict());
    case Kind::kRange:
      return equal_items(runtime, to_items(runtime, a), to_items(runtime, b));
    default:
      return a.object() == b.object();
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (a.is_number() && b.is_number()) return std::is_lt(compare_numbers(a, b));
  if (a.is_undefined()) runtime.fail(a.undefined_reason() + ".");
  if (b.is_undefined()) runtime.fail(b.undefined_reason() + ".");
  if (a.kind() == b.kind() && a.is_string()) {
    runtime.work(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // the order of UTF-8 is that of code points
  }
  if (a.kind() == b.kind() && a.is_sequence()) {
    const Runtime::Level level(runtime);
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(runtime, a.items()[i], b.items()[i]))
        return less(runtime, a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  runtime.fail("a " + std::string(type_name(a)) + " and a " + std::string(type_name(b)) +
               " have no order.");
}

std::optional<std::size_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_code_points(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().entries.size();
    case Kind::kView:
      return value.view().items.size();
    case Kind::kRange:
      return static_cast<std::size_t>(value.range().length);
    default:
      return std::nullopt;
  }
}

Cursor::Cursor(Runtime& runtime, Value source) : runtime_(runtime), source_(std::move(source)) {
  switch (source_.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kIterator:
      return;
    default:
      runtime.fail("a " + std::string(type_name(source_)) + " cannot be iterated.");
  }
}

std::optional<Value> Cursor::next() {
  runtime_.step();
  const auto item_of = [&](const Items& items) {
    return at_ < items.size() ? std::optional(items[at_++]) : std::nullopt;
  };
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string& text = source_.text();
      if (at_ >= text.size()) return std::nullopt;
      const std::size_t size = utf8_length(static_cast<unsigned char>(text[at_]));
      at_ += size;
      return make_part(&runtime_, source_, std::string_view(text).substr(at_ - size, size));
    }
    case Kind::kList:
    case Kind::kTuple:
      return item_of(source_.items());
    case Kind::kView:
      return item_of(source_.view().items);
    case Kind::kDict: {
      const auto& entries = source_.dict().entries;
      return at_ < entries.size() ? std::optional(entries[at_++].first) : std::nullopt;
    }
    case Kind::kRange: {
      const RangeObject& range = source_.range();
      const auto at = static_cast<std::int64_t>(at_++);
      if (at >= range.length) return std::nullopt;
      return Value::integer(range.start + at * range.step);
    }
    case Kind::kIterator: {
      IteratorObject& iterator = source_.iterator();
      if (iterator.next >= iterator.items.size()) return std::nullopt;
      return iterator.items[iterator.next++];
    }
    default:
      return std::nullopt;
  }
}

void for_each(Runtime& runtime, const Value& value, const std::function<bool(const Value&)>& each) {
  Cursor cursor(runtime, value);
  while (const auto item = cursor.next()) {
    if (!each(*item)) return;
  }
}

Items to_items(Runtime& runtime, const Value& value) {
  Items items;
  for_each(runtime, value, [&](const Value& item) {
    runtime.check_items(items.size() + 1);
    items.push_back(item);
    return true;
  });
  return items;
}

}  // namespace quire::chat_internal
