#include "chat/value.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "chat/text.h"

namespace quire::chat_internal {
namespace {

constexpr std::size_t kObjectBytes = 64;      // about what one heap object takes beside its content
constexpr std::size_t kIndexFrom = 12;        // entries from which a dictionary keeps an index
constexpr std::size_t kIndexEntryBytes = 96;  // of one node of that index

int depth_of(const Items& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

template <typename T>
Value make_items(Runtime* runtime, Kind kind, Items&& items) {
  auto object = std::make_shared<T>();
  object->depth = depth_of(items);
  if (runtime != nullptr) {
    runtime->check_items(items.size());
    runtime->check_depth(object->depth);
    runtime->step(1 + items.size() / 4);
  }
  object->charge(runtime, kObjectBytes + items.size() * sizeof(Value));
  object->items = std::move(items);
  return Value(kind, std::move(object));
}

template <typename T>
const T& as(const Value& value) {
  return static_cast<const T&>(*value.object());
}

int key_rank(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return 0;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return 1;
    case Kind::kString:
      return 2;
    case Kind::kTuple:
      return 3;
    default:
      return 4;
  }
}

}  // namespace

const std::string& Value::text() const {
  return as<StringObject>(*this).content.text();
}
const MarkedText& Value::marked_text() const {
  return as<StringObject>(*this).content;
}
bool Value::is_markup() const {
  return is_string() && as<StringObject>(*this).markup;
}
const Items& Value::items() const {
  return as<ListObject>(*this).items;
}
const DictObject& Value::dict() const {
  return as<DictObject>(*this);
}
const ViewObject& Value::view() const {
  return as<ViewObject>(*this);
}
const RangeObject& Value::range() const {
  return as<RangeObject>(*this);
}
const SliceObject& Value::slice() const {
  return as<SliceObject>(*this);
}
IteratorObject& Value::iterator() const {
  return static_cast<IteratorObject&>(*object_);
}
NamespaceObject& Value::name_space() const {
  return static_cast<NamespaceObject&>(*object_);
}
FunctionObject& Value::function() const {
  return static_cast<FunctionObject&>(*object_);
}
AttributeObject& Value::attributes() const {
  return static_cast<AttributeObject&>(*object_);
}
std::string Value::undefined_reason() const {
  return object_ == nullptr ? "the value is undefined" : as<UndefinedObject>(*this).reason;
}

bool KeyLess::operator()(const Value& a, const Value& b) const {
  const int rank = key_rank(a);
  if (rank != key_rank(b)) return rank < key_rank(b);
  switch (rank) {
    case 1: {
      const auto order = compare_numbers(a, b);
      if (order != std::partial_ordering::unordered) return std::is_lt(order);
      return std::isnan(a.as_double()) && !std::isnan(b.as_double());
    }
    case 2:
      return a.text() < b.text();
    case 3:
      return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(),
                                          b.items().end(), KeyLess());
    case 4:
      return a.object().get() < b.object().get();
    default:
      return false;
  }
}

std::optional<std::size_t> DictObject::position(const Value& key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  const KeyLess less_than;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!less_than(entries[i].first, key) && !less_than(key, entries[i].first)) return i;
  }
  return std::nullopt;
}

const Value* DictObject::find(const Value& key) const {
  const auto at = position(key);
  return at ? &entries[*at].second : nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (!index_.empty()) return find(make_string(nullptr, std::string(key)));
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value) {
  if (const auto at = position(key)) {
    entries[*at].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    index_.emplace(key, entries.size() - 1);
  } else if (entries.size() >= kIndexFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i].first, i);
  }
}

Value* NamespaceObject::find(std::string_view name) {
  if (runtime != nullptr) runtime->step(attributes.size() / 8);
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == attributes.end() ? nullptr : &found->second;
}

void NamespaceObject::set(std::string_view name, Value value) {
  if (Value* found = find(name)) {
    *found = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

Value make_string(Runtime* runtime, MarkedText text, bool markup) {
  auto object = std::make_shared<StringObject>();
  if (runtime != nullptr) {
    runtime->check_string(text.size());
    runtime->work(text.size());
  }
  object->charge(runtime, kObjectBytes + text.num_bytes());
  object->content = std::move(text);
  object->markup = markup;
  return Value(Kind::kString, std::move(object));
}

Value make_string(Runtime* runtime, std::string text, bool markup) {
  return make_string(runtime, MarkedText(std::move(text)), markup);
}

Value make_part(Runtime* runtime, const Value& string, std::string_view part, bool markup) {
  MarkedText text;
  text.append_part(string.marked_text(), part);
  return make_string(runtime, std::move(text), markup);
}

Value make_list(Runtime* runtime, Items items) {
  return make_items<ListObject>(runtime, Kind::kList, std::move(items));
}
Value make_tuple(Runtime* runtime, Items items) {
  return make_items<ListObject>(runtime, Kind::kTuple, std::move(items));
}
Value make_iterator(Runtime* runtime, Items items) {
  return make_items<IteratorObject>(runtime, Kind::kIterator, std::move(items));
}

Value make_view(Runtime* runtime, ViewKind kind, Items items) {
  Value view = make_items<ViewObject>(runtime, Kind::kView, std::move(items));
  static_cast<ViewObject&>(*view.object()).kind = kind;
  return view;
}

Value make_undefined(Runtime* runtime, std::string reason) {
  auto object = std::make_shared<UndefinedObject>();
  object->charge(runtime, kObjectBytes + reason.size());
  object->reason = std::move(reason);
  return Value(Kind::kUndefined, std::move(object));
}

Value make_function(Runtime* runtime, std::string name,
                    std::function<Value(Interpreter&, CallArgs&)> call, int depth) {
  auto object = std::make_shared<FunctionObject>();
  object->depth = depth + 1;
  if (runtime != nullptr) runtime->check_depth(object->depth);
  object->charge(runtime, 2 * kObjectBytes);
  object->name = std::move(name);
  object->call = std::move(call);
  return Value(Kind::kFunction, std::move(object));
}

void DictBuilder::set(const Value& key, Value value) {
  if (!is_hashable(runtime_, key)) {
    runtime_.fail("a " + std::string(type_name(key)) + " cannot be a dictionary's key.");
  }
  dict_->depth = std::max({dict_->depth, key.depth() + 1, value.depth() + 1});
  runtime_.check_items(dict_->entries.size() + 1);
  runtime_.check_depth(dict_->depth);
  dict_->set(key, std::move(value));
}

Value DictBuilder::take() {
  dict_->charge(&runtime_,
                kObjectBytes + dict_->entries.size() * (2 * sizeof(Value) + kIndexEntryBytes));
  return Value(Kind::kDict, std::move(dict_));
}

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
