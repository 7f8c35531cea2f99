// Filters on text.
#include <algorithm>
#include <array>
#include <utility>

#include "chat/filters.h"
#include "chat/interpreter.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

void no_args(Runtime& runtime, const char* name, CallArgs& args) {
  ArgReader(runtime, std::string("the filter '") + name + "'", args).done();
}

Value text_result(Interpreter& interpreter, MarkedText text) {
  return make_string(&interpreter.runtime(), std::move(text));
}

// The text of `subject` after `convert`, which leaves none of its bytes where it was.
template <class Convert>
Value converted(Interpreter& interpreter, const Value& subject, const Convert& convert,
                bool markup = false) {
  const MarkedText text = to_text(interpreter.runtime(), subject);
  return make_string(&interpreter.runtime(), MarkedText(convert(text.text()), text.is_marked()),
                     markup);
}

Value filter_upper(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "upper", args);
  return converted(interpreter, subject, to_upper);
}

Value filter_lower(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "lower", args);
  return converted(interpreter, subject, to_lower);
}

Value filter_capitalize(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "capitalize", args);
  return converted(interpreter, subject, capitalize);
}

bool splits_title(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

// Jinja's own rule, not str.title(): a word starts after blanks, hyphens and opening brackets.
std::string jinja_title(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    std::size_t after_first = pos;
    const bool separator = splits_title(next_code_point(text, after_first));
    pos = after_first;
    while (pos < text.size()) {
      std::size_t next = pos;
      if (splits_title(next_code_point(text, next)) != separator) break;
      pos = next;
    }
    out += to_upper(text.substr(start, after_first - start));
    out += to_lower(text.substr(after_first, pos - after_first));
  }
  return out;
}

Value filter_title(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "title", args);
  return converted(interpreter, subject, jinja_title);
}

Value filter_trim(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "the filter 'trim'", args);
  const auto chars = reader.next("chars");
  reader.done();
  const MarkedText text = to_text(interpreter.runtime(), subject);
  MarkedText out;
  if (!chars || chars->is_none()) {
    out.append_part(text, strip(text.text(), nullptr, true, true));
    return text_result(interpreter, std::move(out));
  }
  if (!chars->is_string()) reader.fail_type("chars", "a string", *chars);
  const std::string_view wanted = chars->text();
  out.append_part(text, strip(text.text(), &wanted, true, true));
  return text_result(interpreter, std::move(out));
}

Value filter_replace(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'replace'", args);
  const MarkedText from = to_text(runtime, reader.required("old"));
  const MarkedText to = to_text(runtime, reader.required("new"));
  const auto count = reader.next("count");
  reader.done();
  if (count && !count->is_none() && !count->is_integer())
    reader.fail_type("count", "an int", *count);
  return text_result(interpreter, replace_all(runtime, to_text(runtime, subject), from.text(), to,
                                              count && count->is_integer() ? count->as_int() : -1));
}

Value filter_indent(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'indent'", args);
  const auto width = reader.next("width");
  const bool first = reader.boolean("first", false);
  const bool blank = reader.boolean("blank", false);
  reader.done();
  MarkedText indent(std::string(4, ' '));
  if (width && width->is_string()) {
    indent = width->marked_text();
  } else if (width) {
    if (!width->is_integer()) reader.fail_type("width", "an int or a string", *width);
    const std::int64_t spaces = std::max<std::int64_t>(width->as_int(), 0);
    runtime.check_string(static_cast<std::size_t>(spaces));
    indent = MarkedText(std::string(static_cast<std::size_t>(spaces), ' '));
  }
  // A line end is added so that the last, empty line counts.
  MarkedText text = to_text(runtime, subject);
  text.append("\n");
  TextBuilder out(runtime);
  if (first) out.append(indent);
  bool is_first = true;
  for (std::string_view line : split_lines(text.text(), false, text.size())) {
    if (!is_first) {
      out.append("\n");
      if (blank || !line.empty()) out.append(indent);
    }
    is_first = false;
    out.append_part(text, line);
  }
  return make_string(&runtime, out.release());
}

Value filter_center(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  CallArgs center;
  ArgReader reader(runtime, "the filter 'center'", args);
  center.positional.push_back(Value::integer(reader.integer("width", 80)));
  reader.done();
  const Value text = make_string(&runtime, to_text(runtime, subject));
  return interpreter.call(*find_string_method(interpreter, text, "center"), center);
}

Value filter_truncate(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'truncate'", args);
  const std::int64_t length = reader.integer("length", 255);
  const bool kill_words = reader.boolean("killwords", false);
  const MarkedText end = reader.marked("end", "...");
  const std::int64_t leeway = reader.integer("leeway", 5);
  reader.done();
  const auto end_length = static_cast<std::int64_t>(count_code_points(end.text()));
  if (length < end_length || leeway < 0) {
    runtime.fail(
        "the filter 'truncate' needs a length of at least that of its end, and no negative "
        "leeway.");
  }
  const MarkedText text = to_text(runtime, subject);
  const auto size = static_cast<std::int64_t>(count_code_points(text.text()));
  if (size - leeway <= length) return text_result(interpreter, text);
  std::string_view kept =
      std::string_view(text.text())
          .substr(0, byte_offset(text.text(), static_cast<std::size_t>(length - end_length)));
  if (!kill_words) kept = kept.substr(0, kept.rfind(' '));
  MarkedText out;
  out.append_part(text, kept);
  out.append(end);
  return text_result(interpreter, std::move(out));
}

Value filter_wordcount(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "wordcount", args);
  const std::string text = to_text(interpreter.runtime(), subject).take_text();
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    const bool is_word = c == '_' || is_alpha(c) || is_decimal(c);
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value filter_format(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  if (!args.positional.empty() && !args.keywords.empty()) {
    runtime.fail("the filter 'format' takes positional or named arguments, not both.");
  }
  Value values = make_tuple(&runtime, args.positional);
  if (!args.keywords.empty()) {
    DictBuilder named(runtime);
    for (auto& [name, value] : args.keywords)
      named.set(make_string(&runtime, marked_name(name)), std::move(value));
    values = named.take();
  }
  return text_result(interpreter, format_percent(interpreter, to_text(runtime, subject), values));
}

Value filter_string(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "string", args);
  if (subject.is_string()) return subject;
  return text_result(interpreter, to_text(interpreter.runtime(), subject));
}

Value filter_safe(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "safe", args);
  return make_string(&interpreter.runtime(), to_text(interpreter.runtime(), subject), true);
}

Value filter_escape(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "escape", args);
  if (subject.is_markup()) return subject;
  return converted(interpreter, subject, escape_html, /*markup=*/true);
}

Value filter_forceescape(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  no_args(interpreter.runtime(), "forceescape", args);
  return converted(interpreter, subject, escape_html, /*markup=*/true);
}

std::string indent_of(ArgReader& reader, Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  if (!value.is_integer()) reader.fail_type("indent", "an int or a string", value);
  const std::int64_t spaces = std::max<std::int64_t>(value.as_int(), 0);
  runtime.check_string(static_cast<std::size_t>(spaces));
  return std::string(static_cast<std::size_t>(spaces), ' ');
}

// With the signature that transformers gives it.
Value filter_tojson(Interpreter& interpreter, const Value& subject, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "the filter 'tojson'", args);
  JsonStyle style;
  style.ensure_ascii = reader.boolean("ensure_ascii", false);
  const auto indent = reader.next("indent");
  const auto separators = reader.next("separators");
  style.sort_keys = reader.boolean("sort_keys", false);
  reader.done();
  if (indent && !indent->is_none()) {
    style.indent = indent_of(reader, runtime, *indent);
    style.item_separator = ",";
  }
  if (separators && !separators->is_none()) {
    const Items parts = to_items(runtime, *separators);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      reader.fail_type("separators", "two strings", *separators);
    }
    style.item_separator = parts[0].text();
    style.key_separator = parts[1].text();
  }
  return text_result(interpreter, to_json(runtime, subject, style));
}

constexpr std::array<std::pair<std::string_view, Filter>, 17> kTextFilters = {{
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"trim", filter_trim},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"center", filter_center},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"format", filter_format},
    {"string", filter_string},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"tojson", filter_tojson},
}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto found = std::find_if(kTextFilters.begin(), kTextFilters.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == kTextFilters.end() ? nullptr : found->second;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

MarkedText replace_all(Runtime& runtime, const MarkedText& marked, std::string_view from,
                       const MarkedText& to, std::int64_t count) {
  const std::string_view text = marked.text();
  TextBuilder out(runtime);
  count = std::max<std::int64_t>(count, -1);
  std::size_t pos = 0;
  if (from.empty()) {
    // Before every character and at the end.
    for (; count != 0; --count) {
      out.append(to);
      if (pos >= text.size()) return out.release();
      const std::size_t size = utf8_length(static_cast<unsigned char>(text[pos]));
      out.append_part(marked, text.substr(pos, size));
      pos += size;
    }
  } else {
    runtime.work(text.size());
    for (; count != 0; --count) {
      const std::size_t found = find_first(text, from, pos);
      if (found == std::string_view::npos) break;
      out.append_part(marked, text.substr(pos, found - pos));
      out.append(to);
      pos = found + from.size();
    }
  }
  out.append_part(marked, text.substr(pos));
  return out.release();
}

}  // namespace quire::chat_internal
