// Methods of strings are in string_methods.cc; those of dictionaries and lists are here.
#include <algorithm>
#include <array>

#include "chat/builtins.h"
#include "chat/interpreter.h"

namespace quire::chat_internal {
namespace {

using Method = Value (*)(Interpreter&, const Value& self, CallArgs&);

Value bind(Interpreter& interpreter, const Value& self, std::string_view name, Method method) {
  return make_function(
      &interpreter.runtime(), std::string(name),
      [self, method](Interpreter& caller, CallArgs& args) { return method(caller, self, args); },
      self.depth());
}

Value make_dict_view(Interpreter& interpreter, const Value& self, CallArgs& args, ViewKind kind) {
  Runtime& runtime = interpreter.runtime();
  ArgReader(runtime, "this method of a dict", args).done();
  Items items;
  items.reserve(self.dict().entries.size());
  for (const auto& [key, value] : self.dict().entries) {
    items.push_back(kind == ViewKind::kKeys     ? key
                    : kind == ViewKind::kValues ? value
                                                : make_tuple(&runtime, {key, value}));
  }
  return make_view(&runtime, kind, std::move(items));
}

Value dict_keys(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return make_dict_view(interpreter, self, args, ViewKind::kKeys);
}
Value dict_values(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return make_dict_view(interpreter, self, args, ViewKind::kValues);
}
Value dict_items(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return make_dict_view(interpreter, self, args, ViewKind::kItems);
}

Value dict_get(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  if (!args.keywords.empty()) runtime.fail("dict.get() takes no named arguments.");
  ArgReader reader(runtime, "dict.get()", args);
  const Value key = reader.required("key");
  const Value fallback = reader.next("default").value_or(Value::none());
  reader.done();
  if (!is_hashable(runtime, key)) reader.fail_type("key", "hashable", key);
  runtime.step(1 + self.dict().entries.size() / 16);
  const Value* found = self.dict().find(key);
  return found == nullptr ? fallback : *found;
}

Value dict_copy(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader(interpreter.runtime(), "dict.copy()", args).done();
  return self;  // dictionaries are immutable here
}

Value list_copy(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader(interpreter.runtime(), "list.copy()", args).done();
  return self;
}

Value list_count(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "count()", args);
  const Value wanted = reader.required("value");
  reader.done();
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const Value& item) { return equal(runtime, item, wanted); }));
}

Value list_index(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "index()", args);
  const Value wanted = reader.required("value");
  reader.done();
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(runtime, self.items()[i], wanted))
      return Value::integer(static_cast<std::int64_t>(i));
  }
  runtime.fail("index() does not find the value in the list.");
}

Method find_dict_method(std::string_view name) {
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  if (name == "items") return dict_items;
  if (name == "get") return dict_get;
  if (name == "copy") return dict_copy;
  return nullptr;
}

Method find_sequence_method(std::string_view name, bool is_list) {
  if (name == "count") return list_count;
  if (name == "index") return list_index;
  if (name == "copy" && is_list) return list_copy;
  return nullptr;
}

// Methods that would change what templates may only read.
bool changes(Kind kind, std::string_view name) {
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  if (kind == Kind::kDict) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return kind == Kind::kList && std::find(kList.begin(), kList.end(), name) != kList.end();
}

}  // namespace

std::optional<Value> find_method(Interpreter& interpreter, const Value& self,
                                 std::string_view name) {
  if (self.is_string()) return find_string_method(interpreter, self, name);
  Method method = nullptr;
  if (self.is(Kind::kDict)) method = find_dict_method(name);
  if (self.is_sequence()) method = find_sequence_method(name, self.is(Kind::kList));
  if (method != nullptr) return bind(interpreter, self, name, method);
  if (changes(self.kind(), name)) {
    return make_undefined(&interpreter.runtime(), "the method '" + std::string(name) + "' of a " +
                                                      std::string(type_name(self)) +
                                                      " changes it, which templates must not do");
  }
  return std::nullopt;
}

}  // namespace quire::chat_internal
