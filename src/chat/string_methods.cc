// Methods of strings, with Python's results.
#include <algorithm>
#include <array>

#include "chat/builtins.h"
#include "chat/interpreter.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

using Method = Value (*)(Interpreter&, const Value& self, CallArgs&);

// A part of `self`, in which it lies.
Value part_value(Interpreter& interpreter, const Value& self, std::string_view part) {
  return make_part(&interpreter.runtime(), self, part);
}

template <std::string (*convert)(std::string_view)>
Value convert_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader(interpreter.runtime(), "this method of a string", args).done();
  return make_string(&interpreter.runtime(),
                     MarkedText(convert(self.text()), self.marked_text().is_marked()));
}

template <bool left, bool right>
Value strip_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "strip()", args);
  const auto chars = reader.next("chars");
  reader.done();
  if (!chars || chars->is_none()) {
    return part_value(interpreter, self, strip(self.text(), nullptr, left, right));
  }
  if (!chars->is_string()) reader.fail_type("chars", "a string", *chars);
  const std::string_view wanted = chars->text();
  interpreter.runtime().work(self.text().size());
  return part_value(interpreter, self, strip(self.text(), &wanted, left, right));
}

// How a text is split. At most `limit` cuts, or any number where it is negative; more than
// `max_parts` parts end it early, as they are too many anyway.
struct SplitBounds {
  std::int64_t limit = -1;
  std::size_t max_parts = 0;

  bool more(std::size_t parts) const {
    return (limit < 0 || parts < static_cast<std::size_t>(limit)) && parts <= max_parts;
  }
};

using Parts = std::vector<std::string_view>;

// Between runs of whitespace.
Parts split_space(std::string_view text, SplitBounds bounds) {
  Parts parts;
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    std::size_t end = bounds.more(parts.size()) ? 0 : text.size();
    while (end < text.size()) {
      std::size_t next = end;
      if (is_space(next_code_point(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), nullptr, true, false);
  }
  return parts;
}

Parts rsplit_space(std::string_view text, SplitBounds bounds) {
  Parts parts;
  text = strip(text, nullptr, false, true);
  while (!text.empty()) {
    std::size_t start = bounds.more(parts.size()) ? text.size() : 0;
    while (start > 0) {
      std::size_t before = start - 1;
      while ((static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
      std::size_t at = before;
      if (is_space(next_code_point(text, at))) break;
      start = before;
    }
    parts.push_back(text.substr(start));
    text = strip(text.substr(0, start), nullptr, false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts split_on(std::string_view text, std::string_view separator, SplitBounds bounds) {
  Parts parts;
  while (bounds.more(parts.size())) {
    const std::size_t found = find_first(text, separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// Splits the reversed text, so that the search stays linear from the right too.
Parts rsplit_on(std::string_view text, std::string_view separator, SplitBounds bounds) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  Parts parts = split_on(reversed_text, reversed_separator, bounds);
  for (std::string_view& part : parts) {
    const auto offset = static_cast<std::size_t>(part.data() - reversed_text.data());
    part = text.substr(text.size() - offset - part.size(), part.size());
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value to_list(Interpreter& interpreter, const Value& self, const Parts& parts) {
  interpreter.runtime().check_items(parts.size());
  Items items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(part_value(interpreter, self, part));
  return make_list(&interpreter.runtime(), std::move(items));
}

template <bool from_right>
Value split_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "split()", args);
  const auto separator = reader.next("sep");
  const SplitBounds bounds{reader.integer("maxsplit", -1), runtime.limits().max_list_items};
  reader.done();
  runtime.work(self.text().size());
  if (!separator || separator->is_none()) {
    return to_list(
        interpreter, self,
        from_right ? rsplit_space(self.text(), bounds) : split_space(self.text(), bounds));
  }
  if (!separator->is_string()) reader.fail_type("sep", "a string", *separator);
  if (separator->text().empty()) runtime.fail("the separator of split() must not be empty.");
  return to_list(interpreter, self,
                 from_right ? rsplit_on(self.text(), separator->text(), bounds)
                            : split_on(self.text(), separator->text(), bounds));
}

Value text_splitlines(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "splitlines()", args);
  const bool keep = reader.boolean("keepends", false);
  reader.done();
  return to_list(interpreter, self,
                 split_lines(self.text(), keep, interpreter.runtime().limits().max_list_items));
}

template <bool from_right>
Value partition_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "partition()", args);
  const std::string separator = reader.string("sep");
  reader.done();
  if (separator.empty()) runtime.fail("the separator of partition() must not be empty.");
  const std::string_view text = self.text();
  const std::size_t at = from_right ? find_last(text, separator) : find_first(text, separator);
  const Value empty = make_string(&runtime, "");
  if (at == std::string::npos) {
    return make_tuple(&runtime, from_right ? Items{empty, empty, self} : Items{self, empty, empty});
  }
  return make_tuple(&runtime, {part_value(interpreter, self, text.substr(0, at)),
                               part_value(interpreter, self, text.substr(at, separator.size())),
                               part_value(interpreter, self, text.substr(at + separator.size()))});
}

// The part of `text` that the optional arguments start and end take, and its offset.
std::string_view take_range(ArgReader& reader, std::string_view text, bool& is_valid) {
  const auto start_value = reader.next("start");
  const auto end_value = reader.next("end");
  reader.done();
  const auto bound = [&](const std::optional<Value>& value, std::string_view name,
                         std::int64_t fallback, std::int64_t length) {
    if (!value || value->is_none()) return fallback;
    if (!value->is_integer()) reader.fail_type(name, "an int", *value);
    const std::int64_t at = value->as_int();
    return at < 0 ? std::max<std::int64_t>(at, -length) + length : std::min(at, length + 1);
  };
  const auto length = static_cast<std::int64_t>(count_code_points(text));
  const std::int64_t start = bound(start_value, "start", 0, length);
  const std::int64_t end = std::min(bound(end_value, "end", length, length), length);
  is_valid = start <= end;
  if (!is_valid) return {};
  const std::size_t from = byte_offset(text, static_cast<std::size_t>(start));
  return text.substr(from, byte_offset(text, static_cast<std::size_t>(end)) - from);
}

template <bool at_end>
Value has_affix(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, at_end ? "endswith()" : "startswith()", args);
  const Value affix = reader.required("prefix");
  bool is_valid = true;
  runtime.work(args.positional.size() > 1 ? self.text().size() : 0);
  const std::string_view text = args.positional.size() > 1
                                    ? take_range(reader, self.text(), is_valid)
                                    : std::string_view(self.text());
  reader.done();
  const auto matches = [&](const Value& part) {
    if (!part.is_string()) reader.fail_type("prefix", "a string or a tuple of strings", part);
    runtime.work(std::min(part.text().size(), text.size()));
    return is_valid && (at_end ? text.ends_with(part.text()) : text.starts_with(part.text()));
  };
  if (!affix.is(Kind::kTuple)) return Value::boolean(matches(affix));
  runtime.step(affix.items().size());
  return Value::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

template <bool from_right, bool must_exist>
Value find_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "find()", args);
  const std::string wanted = reader.string("sub");
  bool is_valid = true;
  runtime.work(self.text().size());
  const std::string_view text = take_range(reader, self.text(), is_valid);
  const std::size_t at = !is_valid    ? std::string_view::npos
                         : from_right ? find_last(text, wanted)
                                      : find_first(text, wanted);
  if (at == std::string_view::npos) {
    if (must_exist) runtime.fail("index() does not find the text in the string.");
    return Value::integer(-1);
  }
  const auto offset = static_cast<std::size_t>(text.data() - self.text().data()) + at;
  return Value::integer(static_cast<std::int64_t>(
      count_code_points(std::string_view(self.text()).substr(0, offset))));
}

Value text_count(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "count()", args);
  const std::string wanted = reader.string("sub");
  bool is_valid = true;
  runtime.work(self.text().size());
  const std::string_view text = take_range(reader, self.text(), is_valid);
  if (!is_valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(count_code_points(text)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = find_first(text, wanted); at != std::string_view::npos;
       at = find_first(text, wanted, at + wanted.size())) {
    ++count;
  }
  return Value::integer(count);
}

Value text_replace(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "replace()", args);
  const std::string from = reader.string("old");
  const Value to = reader.required("new");
  if (!to.is_string()) reader.fail_type("new", "a string", to);
  const std::int64_t count = reader.integer("count", -1);
  reader.done();
  return make_string(&runtime,
                     replace_all(runtime, self.marked_text(), from, to.marked_text(), count));
}

Value text_join(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "join()", args);
  const Value parts = reader.required("iterable");
  reader.done();
  TextBuilder out(runtime);
  bool first = true;
  for_each(runtime, parts, [&](const Value& part) {
    if (!part.is_string()) reader.fail_type("iterable", "a list of strings", part);
    if (!first) out.append(self.marked_text());
    first = false;
    out.append(part.marked_text());
    return true;
  });
  return make_string(&runtime, out.release());
}

template <bool at_end>
Value remove_affix(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "removeprefix() or removesuffix()", args);
  const std::string affix = reader.string("affix");
  reader.done();
  std::string_view text = self.text();
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  return part_value(interpreter, self, text);
}

enum class Side { kLeft, kRight, kBoth };

template <Side side>
Value pad_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "ljust(), rjust() or center()", args);
  const std::int64_t width = reader.integer("width", 0);
  const MarkedText fill = reader.marked("fillchar", " ");
  reader.done();
  if (count_code_points(fill.text()) != 1)
    runtime.fail("the fill of a padded string must be one character.");
  const auto length = static_cast<std::int64_t>(count_code_points(self.text()));
  const auto pad = static_cast<std::size_t>(width > length ? width - length : 0);
  runtime.check_string(pad);
  // CPython's str.center() puts the odd character left only where the width is odd.
  const std::size_t before = side == Side::kRight ? pad
                             : side == Side::kLeft
                                 ? 0
                                 : pad / 2 + (pad & static_cast<std::size_t>(width) & 1);
  TextBuilder out(runtime);
  for (std::size_t i = 0; i < before; ++i) out.append(fill);
  out.append(self.marked_text());
  for (std::size_t i = before; i < pad; ++i) out.append(fill);
  return make_string(&runtime, out.release());
}

Value text_zfill(Interpreter& interpreter, const Value& self, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "zfill()", args);
  const std::int64_t width = reader.integer("width", 0);
  reader.done();
  const auto length = static_cast<std::int64_t>(count_code_points(self.text()));
  if (width <= length) return self;
  runtime.check_string(static_cast<std::size_t>(width - length));
  const MarkedText& text = self.marked_text();
  const bool has_sign = text.text().starts_with('-') || text.text().starts_with('+');
  const std::size_t sign = has_sign ? 1 : 0;
  MarkedText out = text.part(0, sign);
  out.append(std::string(static_cast<std::size_t>(width - length), '0'));
  out.append(text, sign, text.size() - sign);
  return make_string(&runtime, std::move(out));
}

Value text_format(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return make_string(&interpreter.runtime(), format_braces(interpreter, self.marked_text(), args));
}

template <bool (*accepts)(char32_t)>
Value is_all(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader(interpreter.runtime(), "this method of a string", args).done();
  const std::string& text = self.text();
  for (std::size_t pos = 0; pos < text.size();) {
    if (!accepts(next_code_point(text, pos))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_decimal(c);
}

// islower() and isupper() are the tests of the same meaning.
template <bool lower>
Value is_case(Interpreter& interpreter, const Value& self, CallArgs& args) {
  ArgReader(interpreter.runtime(), "this method of a string", args).done();
  CallArgs none;
  return Value::boolean(interpreter.apply_test(lower ? "lower" : "upper", self, none));
}

constexpr std::array<std::pair<std::string_view, Method>, 36> kMethods = {{
    {"strip", strip_text<true, true>},
    {"lstrip", strip_text<true, false>},
    {"rstrip", strip_text<false, true>},
    {"split", split_text<false>},
    {"rsplit", split_text<true>},
    {"splitlines", text_splitlines},
    {"partition", partition_text<false>},
    {"rpartition", partition_text<true>},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"find", find_text<false, false>},
    {"rfind", find_text<true, false>},
    {"index", find_text<false, true>},
    {"rindex", find_text<true, true>},
    {"count", text_count},
    {"replace", text_replace},
    {"join", text_join},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"upper", convert_text<to_upper>},
    {"lower", convert_text<to_lower>},
    {"capitalize", convert_text<capitalize>},
    {"title", convert_text<title_case>},
    {"swapcase", convert_text<swap_case>},
    {"ljust", pad_text<Side::kLeft>},
    {"rjust", pad_text<Side::kRight>},
    {"center", pad_text<Side::kBoth>},
    {"zfill", text_zfill},
    {"format", text_format},
    {"isspace", is_all<is_space>},
    {"isdigit", is_all<is_decimal>},
    {"isdecimal", is_all<is_decimal>},
    {"isalpha", is_all<is_alpha>},
    {"isalnum", is_all<is_alnum>},
    {"islower", is_case<true>},
    {"isupper", is_case<false>},
}};

// Methods that Python has and templates hardly use.
constexpr std::array<std::string_view, 11> kUnsupported = {
    "casefold",    "encode",    "expandtabs", "format_map", "isascii",  "isidentifier",
    "isprintable", "isnumeric", "istitle",    "maketrans",  "translate"};

}  // namespace

std::optional<Value> find_string_method(Interpreter& interpreter, const Value& self,
                                        std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found != kMethods.end()) {
    return make_function(&interpreter.runtime(), std::string(name),
                         [self, method = found->second](Interpreter& caller, CallArgs& args) {
                           caller.runtime().work(self.text().size());
                           return method(caller, self, args);
                         });
  }
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) == kUnsupported.end())
    return std::nullopt;
  interpreter.runtime().fail("the method '" + std::string(name) + "' of strings is not supported.");
}

}  // namespace quire::chat_internal
