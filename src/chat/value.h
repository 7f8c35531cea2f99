#pragma once
// A value of a template: Python's types, as far as templates use them.
//
// Values are immutable except for namespaces, iterators and loop state, as in Hugging Face's
// sandbox, so copies share. Heap objects made with a Runtime are charged to it and must die before
// it; constants of the template are made without one, and threads may share them.
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/marked_text.h"
#include "chat/runtime.h"

namespace quire::chat_internal {

class Interpreter;
class Value;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // what map, select, ... give: can be walked once
  kRange,
  kNamespace,
  kFunction,
  kObject,  // `loop`, cycler, joiner: attributes and calls only
  kSlice,   // inside [ ] only
};

// Base of everything on the heap.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (runtime != nullptr) runtime->give_back(bytes);
  }
  void charge(Runtime* to, std::size_t size) {
    if (to == nullptr) return;
    to->take(size);
    runtime = to;
    bytes = size;
  }
  Runtime* runtime = nullptr;
  std::size_t bytes = 0;
  int depth = 0;  // of the values inside: bounds every recursion over values
};

struct StringObject;
struct ListObject;
struct DictObject;
struct RangeObject;
struct SliceObject;
struct NamespaceObject;
struct UndefinedObject;
struct FunctionObject;
struct IteratorObject;
struct ViewObject;
struct AttributeObject;

class Value {
 public:
  Value() = default;  // undefined, of no name
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) {
    Value v(Kind::kBool);
    v.integer_ = value ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t value) {
    Value v(Kind::kInt);
    v.integer_ = value;
    return v;
  }
  static Value number(double value) {
    Value v(Kind::kFloat);
    v.number_ = value;
    return v;
  }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  // int or bool, which Python counts as an int.
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }
  // A list or tuple.
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  std::int64_t as_int() const { return integer_; }  // of kInt and kBool
  double as_double() const {
    return kind_ == Kind::kFloat ? number_ : static_cast<double>(integer_);
  }
  const std::string& text() const;          // of kString
  const MarkedText& marked_text() const;    // of kString
  bool is_markup() const;                   // a string that the safe or escape filter made
  const std::vector<Value>& items() const;  // of kList, kTuple
  const DictObject& dict() const;           // of kDict
  const ViewObject& view() const;
  const RangeObject& range() const;
  const SliceObject& slice() const;
  IteratorObject& iterator() const;
  NamespaceObject& name_space() const;
  FunctionObject& function() const;
  AttributeObject& attributes() const;
  // Why an undefined value is: "'x' is undefined".
  std::string undefined_reason() const;
  int depth() const { return object_ == nullptr ? 0 : object_->depth; }
  const std::shared_ptr<Object>& object() const { return object_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer_ = 0;
    double number_;
  };
  std::shared_ptr<Object> object_;
};

using Items = std::vector<Value>;
using Keywords = std::vector<std::pair<std::string, Value>>;

// What a call passes.
struct CallArgs {
  Items positional;
  Keywords keywords;
};

struct StringObject : Object {
  MarkedText content;
  bool markup = false;
};

struct ListObject : Object {
  Items items;
};

// Order among the keys of a dictionary: equal in Python is equivalent here (1, 1.0 and True).
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

// A dictionary in order of insertion.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Adds or replaces. The key is hashable (is_hashable).
  void set(const Value& key, Value value);

 private:
  std::optional<std::size_t> position(const Value& key) const;
  // Built when the entries are too many to look at one by one.
  std::map<Value, std::size_t, KeyLess> index_;
};

struct RangeObject : Object {
  std::int64_t start = 0, stop = 0, step = 1, length = 0;
};

struct SliceObject : Object {
  Value start, stop, step;
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

struct UndefinedObject : Object {
  std::string reason;
};

enum class ViewKind { kKeys, kValues, kItems };
struct ViewObject : Object {
  ViewKind kind = ViewKind::kKeys;
  Items items;
};

struct IteratorObject : Object {
  Items items;
  std::size_t next = 0;
};

struct FunctionObject : Object {
  std::string name;
  std::function<Value(Interpreter&, CallArgs&)> call;
};

// A built-in object with attributes of its own.
struct AttributeObject : Object {
  virtual std::string_view type_name() const = 0;
  // The attribute, or nullopt where there is none.
  virtual std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) = 0;
  virtual Value call(Interpreter& interpreter, CallArgs& args) = 0;
};

// --- making values; `runtime` is null for constants of a template ---

Value make_string(Runtime* runtime, MarkedText text, bool markup = false);
// The template's own text.
Value make_string(Runtime* runtime, std::string text, bool markup = false);
// A part of a string, with its marks. `part` lies within string.text().
Value make_part(Runtime* runtime, const Value& string, std::string_view part, bool markup = false);
Value make_list(Runtime* runtime, Items items);
Value make_tuple(Runtime* runtime, Items items);
Value make_iterator(Runtime* runtime, Items items);
Value make_undefined(Runtime* runtime, std::string reason);
// `depth`: of the values that the function holds.
Value make_function(Runtime* runtime, std::string name,
                    std::function<Value(Interpreter&, CallArgs&)> call, int depth = 0);
Value make_view(Runtime* runtime, ViewKind kind, Items items);

// Builds a dictionary, which is immutable once taken.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& runtime)
      : runtime_(runtime), dict_(std::make_shared<DictObject>()) {}
  // Throws where the key is not hashable.
  void set(const Value& key, Value value);
  Value take();

 private:
  Runtime& runtime_;
  std::shared_ptr<DictObject> dict_;
};

// --- asking about values ---

// Python's name of the type, e.g. "dict".
std::string_view type_name(const Value& value);
// Whether `value` may be a dictionary's key. Counts its size as work, since look-ups compare it.
bool is_hashable(Runtime& runtime, const Value& value);
bool truthy(const Value& value);
// Exact order of an int and a float, either way round; unordered where one is NaN.
std::partial_ordering compare_numbers(const Value& a, const Value& b);
bool equal(Runtime& runtime, const Value& a, const Value& b);
// a < b as Python has it; throws where the types have no order.
bool less(Runtime& runtime, const Value& a, const Value& b);
// len(), or nullopt where the type has none.
std::optional<std::size_t> length(const Value& value);
// Walks over the items of a value, one at a time: Python's iterator.
class Cursor {
 public:
  // Throws where `source` cannot be iterated.
  Cursor(Runtime& runtime, Value source);
  std::optional<Value> next();

 private:
  Runtime& runtime_;
  Value source_;
  std::size_t at_ = 0;
};
// Calls `each` with every item until it returns false; throws where `value` cannot be iterated.
void for_each(Runtime& runtime, const Value& value, const std::function<bool(const Value&)>& each);
// All items, e.g. the characters of a string or the keys of a dictionary.
Items to_items(Runtime& runtime, const Value& value);

// --- text of values ---

// str(): what printing gives.
MarkedText to_text(Runtime& runtime, const Value& value);
MarkedText repr(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; unset: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps().
MarkedText to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace quire::chat_internal
