// Filters on lists and mappings.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "chat/filters.h"
#include "chat/interpreter.h"
#include "chat/operators.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

Value lowered(Runtime& runtime, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return make_string(&runtime, MarkedText(to_lower(value.text()), value.marked_text().is_marked()));
}

// What sort, unique, min and max compare: an attribute where one is asked for, in lower case by
// default.
Value sort_key(Interpreter& interpreter, const Value& item, const std::optional<Value>& attribute,
               bool case_sensitive) {
  const bool has_path = attribute && !attribute->is_none();
  return lowered(interpreter.runtime(),
                 has_path ? follow_path(interpreter, item, *attribute) : item, case_sensitive);
}

// Sorts by keys, stably both ways round as Python's sorted().
Items sorted_by(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return less(runtime, a.first, b.first); });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  Items out;
  out.reserve(keyed.size());
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

Value filter_list(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  ArgReader(interpreter.runtime(), "the filter 'list'", args).done();
  return make_list(&interpreter.runtime(), to_items(interpreter.runtime(), subject));
}

Value filter_length(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader(runtime, "the filter 'length'", args).done();
  if (subject.is_string()) runtime.work(subject.text().size());
  const auto count = length(subject);
  if (!count) runtime.fail("a " + std::string(type_name(subject)) + " has no length.");
  return Value::integer(static_cast<std::int64_t>(*count));
}

Value filter_first(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader(runtime, "the filter 'first'", args).done();
  const auto item = Cursor(runtime, subject).next();
  return item ? *item : make_undefined(&runtime, "there is no first item, the sequence was empty");
}

Value filter_last(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader(runtime, "the filter 'last'", args).done();
  if (subject.is(Kind::kIterator)) {
    runtime.fail("the filter 'last' cannot walk a generator from its end; add the filter 'list'.");
  }
  const Items items = to_items(runtime, subject);
  return items.empty() ? make_undefined(&runtime, "there is no last item, the sequence was empty")
                       : items.back();
}

Value filter_join(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'join'", args);
  const auto separator_value = reader.next("d");
  const auto attribute = reader.next("attribute");
  reader.done();
  const MarkedText separator = separator_value ? to_text(runtime, *separator_value) : MarkedText();
  TextBuilder out(runtime);
  bool first = true;
  for_each(runtime, subject, [&](const Value& item) {
    if (!first) out.append(separator);
    first = false;
    const bool has_path = attribute && !attribute->is_none();
    out.append(to_text(runtime, has_path ? follow_path(interpreter, item, *attribute) : item));
    return true;
  });
  return make_string(&runtime, out.release());
}

Value filter_reverse(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader(runtime, "the filter 'reverse'", args).done();
  if (subject.is_string()) {
    auto back = std::make_shared<SliceObject>();
    back->start = back->stop = Value::none();
    back->step = Value::integer(-1);
    return interpreter.get_slice(subject, Value(Kind::kSlice, std::move(back)));
  }
  Items items = to_items(runtime, subject);
  std::reverse(items.begin(), items.end());
  if (subject.is(Kind::kIterator)) return make_list(&runtime, std::move(items));
  return make_iterator(&runtime, std::move(items));
}

Value filter_sort(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'sort'", args);
  const bool reverse = reader.boolean("reverse", false);
  const bool case_sensitive = reader.boolean("case_sensitive", false);
  const auto attribute = reader.next("attribute");
  reader.done();
  // Several attributes are separated by commas.
  std::vector<Value> paths;
  if (attribute && attribute->is_string()) {
    std::string_view rest = attribute->text();
    while (true) {
      const std::size_t comma = rest.find(',');
      paths.push_back(make_string(&runtime, std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(attribute.value_or(Value::none()));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_items(runtime, subject)) {
    Items key;
    for (const Value& path : paths)
      key.push_back(sort_key(interpreter, item, path, case_sensitive));
    keyed.emplace_back(make_list(&runtime, std::move(key)), std::move(item));
  }
  return make_list(&runtime, sorted_by(runtime, std::move(keyed), reverse));
}

Value filter_dictsort(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'dictsort'", args);
  const bool case_sensitive = reader.boolean("case_sensitive", false);
  const std::string by = reader.string("by", "key");
  const bool reverse = reader.boolean("reverse", false);
  reader.done();
  if (by != "key" && by != "value")
    runtime.fail("the filter 'dictsort' sorts by 'key' or 'value'.");
  if (!subject.is(Kind::kDict)) reader.fail_type("value", "a dict", subject);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : subject.dict().entries) {
    keyed.emplace_back(lowered(runtime, by == "key" ? key : value, case_sensitive),
                       make_tuple(&runtime, {key, value}));
  }
  return make_list(&runtime, sorted_by(runtime, std::move(keyed), reverse));
}

Value filter_unique(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'unique'", args);
  const bool case_sensitive = reader.boolean("case_sensitive", false);
  const auto attribute = reader.next("attribute");
  reader.done();
  std::set<Value, KeyLess> seen;
  Items out;
  for_each(runtime, subject, [&](const Value& item) {
    Value key = sort_key(interpreter, item, attribute, case_sensitive);
    if (!is_hashable(runtime, key)) {
      runtime.fail("the filter 'unique' cannot compare a " + std::string(type_name(key)) + ".");
    }
    runtime.check_items(seen.size() + 1);
    if (seen.insert(std::move(key)).second) out.push_back(item);
    return true;
  });
  return make_iterator(&runtime, std::move(out));
}

Value extreme(Interpreter& interpreter, const Value& subject, CallArgs& args, bool largest) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, largest ? "the filter 'max'" : "the filter 'min'", args);
  const bool case_sensitive = reader.boolean("case_sensitive", false);
  const auto attribute = reader.next("attribute");
  reader.done();
  std::optional<std::pair<Value, Value>> best;
  for_each(runtime, subject, [&](const Value& item) {
    Value key = sort_key(interpreter, item, attribute, case_sensitive);
    if (!best || (largest ? less(runtime, best->first, key) : less(runtime, key, best->first))) {
      best.emplace(std::move(key), item);
    }
    return true;
  });
  return best ? best->second
              : make_undefined(&runtime, "there is no extreme item, the sequence was empty");
}

Value filter_max(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return extreme(interpreter, subject, args, true);
}
Value filter_min(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return extreme(interpreter, subject, args, false);
}

Value filter_sum(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'sum'", args);
  const auto attribute = reader.next("attribute");
  Value total = reader.next("start").value_or(Value::integer(0));
  reader.done();
  if (total.is_string()) runtime.fail("the filter 'sum' does not add strings; use 'join'.");
  for_each(runtime, subject, [&](const Value& item) {
    const bool has_path = attribute && !attribute->is_none();
    total = binary(interpreter, "+", total,
                   has_path ? follow_path(interpreter, item, *attribute) : item);
    return true;
  });
  return total;
}

Value filter_items(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'items'", args);
  reader.done();
  Items out;
  if (subject.is_undefined()) return make_iterator(&runtime, std::move(out));
  if (!subject.is(Kind::kDict)) reader.fail_type("value", "a dict", subject);
  for (const auto& [key, value] : subject.dict().entries)
    out.push_back(make_tuple(&runtime, {key, value}));
  return make_iterator(&runtime, std::move(out));
}

Value filter_map(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  Items out;
  if (!truthy(subject)) return make_iterator(&runtime, std::move(out));
  ArgReader reader(runtime, "the filter 'map'", args);
  if (args.positional.empty()) {
    const Value path = reader.required("attribute");
    const auto fallback = reader.next("default");
    reader.done();
    for_each(runtime, subject, [&](const Value& item) {
      out.push_back(follow_path(interpreter, item, path, fallback));
      return true;
    });
    return make_iterator(&runtime, std::move(out));
  }
  const std::string name = reader.string("name");
  CallArgs rest{Items(args.positional.begin() + 1, args.positional.end()), args.keywords};
  for_each(runtime, subject, [&](const Value& item) {
    CallArgs copy = rest;
    runtime.step(1 + copy.positional.size());
    out.push_back(interpreter.apply_filter(name, item, copy));
    return true;
  });
  return make_iterator(&runtime, std::move(out));
}

Value select_or_reject(Interpreter& interpreter, const Value& subject, CallArgs& args, bool keep,
                       bool by_attribute) {
  Runtime& runtime = interpreter.runtime();
  Items out;
  if (!truthy(subject)) return make_iterator(&runtime, std::move(out));
  ArgReader reader(runtime, "the filters select and reject", args);
  const Value path = by_attribute ? reader.required("attribute") : Value::none();
  const std::size_t skip = by_attribute ? 1 : 0;
  const bool has_test = args.positional.size() > skip;
  const std::string test = has_test ? reader.string("test") : "";
  CallArgs rest;
  if (has_test) {
    rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1,
                           args.positional.end());
    rest.keywords = args.keywords;
  }
  for_each(runtime, subject, [&](const Value& item) {
    const Value tested = by_attribute ? follow_path(interpreter, item, path) : item;
    CallArgs copy = rest;
    runtime.step(1 + copy.positional.size());
    const bool passes = has_test ? interpreter.apply_test(test, tested, copy) : truthy(tested);
    if (passes == keep) out.push_back(item);
    return true;
  });
  return make_iterator(&runtime, std::move(out));
}

Value filter_select(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return select_or_reject(interpreter, subject, args, true, false);
}
Value filter_reject(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return select_or_reject(interpreter, subject, args, false, false);
}
Value filter_selectattr(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return select_or_reject(interpreter, subject, args, true, true);
}
Value filter_rejectattr(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  return select_or_reject(interpreter, subject, args, false, true);
}

Value filter_batch(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'batch'", args);
  const std::int64_t size = reader.integer("linecount", 0);
  const Value fill = reader.next("fill_with").value_or(Value::none());
  reader.done();
  if (size < 1) runtime.fail("the filter 'batch' needs a size of at least 1.");
  Items batches, batch;
  for_each(runtime, subject, [&](const Value& item) {
    if (static_cast<std::int64_t>(batch.size()) == size) {
      batches.push_back(make_list(&runtime, std::exchange(batch, {})));
    }
    batch.push_back(item);
    return true;
  });
  if (!batch.empty()) {
    if (!fill.is_none()) {
      runtime.check_items(static_cast<std::size_t>(size));
      batch.resize(static_cast<std::size_t>(size), fill);
    }
    batches.push_back(make_list(&runtime, std::move(batch)));
  }
  return make_iterator(&runtime, std::move(batches));
}

constexpr std::array<std::pair<std::string_view, Filter>, 20> kListFilters = {{
    {"list", filter_list},
    {"length", filter_length},
    {"count", filter_length},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"max", filter_max},
    {"min", filter_min},
    {"sum", filter_sum},
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"batch", filter_batch},
}};

}  // namespace

Filter find_list_filter(std::string_view name) {
  const auto found = std::find_if(kListFilters.begin(), kListFilters.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == kListFilters.end() ? nullptr : found->second;
}

Value follow_path(Interpreter& interpreter, const Value& item, const Value& path,
                  const std::optional<Value>& fallback) {
  Value at = item;
  const auto step = [&](const Value& key) {
    at = interpreter.get_item(at, key);
    if (at.is_undefined() && fallback && !fallback->is_none()) at = *fallback;
  };
  if (!path.is_string()) {
    step(path);
    return at;
  }
  Runtime& runtime = interpreter.runtime();
  std::string_view rest = path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const auto number = is_number ? parse_int(runtime, part, 10) : std::nullopt;
    step(number ? Value::integer(*number) : make_string(&runtime, part));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace quire::chat_internal
