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

}  // namespace quire::chat_internal
