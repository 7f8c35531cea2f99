// str.format() and the % operator of strings.
#include <algorithm>

#include "chat/builtins.h"
#include "chat/format_spec.h"
#include "chat/interpreter.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

// Follows the ".name" and "[index]" of a field.
Value follow_field(Interpreter& interpreter, Value value, std::string_view rest) {
  Runtime& runtime = interpreter.runtime();
  while (!rest.empty()) {
    const bool is_item = rest[0] == '[';
    rest.remove_prefix(1);
    const std::size_t end = is_item ? rest.find(']') : rest.find_first_of(".[");
    if (is_item && end == std::string_view::npos) runtime.fail("a '[' in a format is not closed.");
    const std::string name(rest.substr(0, end));
    const auto index = is_item ? parse_int(runtime, name, 10) : std::nullopt;
    value = index     ? interpreter.get_item(value, Value::integer(*index))
            : is_item ? interpreter.get_item(value, make_string(&runtime, name))
                      : interpreter.get_attribute(value, name);
    rest = end == std::string_view::npos ? "" : rest.substr(end + (is_item ? 1 : 0));
  }
  return value;
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const CallArgs& args)
      : interpreter_(interpreter), runtime_(interpreter.runtime()), args_(args), out_(runtime_) {}

  // If a part of the format is marked, all that is written from it is marked.
  MarkedText format(const MarkedText& text) {
    marked_ = text.is_marked();
    write(text.text(), 2, out_);
    return out_.release();
  }

 private:
  void write(std::string_view text, int depth, TextBuilder& out) {
    if (depth == 0) runtime_.fail("the fields of a format are nested too deep.");
    while (!text.empty()) {
      const std::size_t brace = std::min(text.find_first_of("{}"), text.size());
      out.append(MarkedText(std::string(text.substr(0, brace)), marked_));
      text.remove_prefix(brace);
      if (text.empty()) return;
      if (text.size() > 1 && text[1] == text[0]) {
        out.append(MarkedText(std::string(text.substr(0, 1)), marked_));
        text.remove_prefix(2);
        continue;
      }
      if (text[0] == '}')
        runtime_.fail("a '}' in a format has no '{'; write '}}' for the character.");
      const std::size_t end = field_end(text);
      write_field(text.substr(1, end - 1), depth, out);
      text.remove_prefix(end + 1);
    }
  }

  std::size_t field_end(std::string_view text) const {
    int open = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    runtime_.fail("a '{' in a format is not closed; write '{{' for the character.");
  }

  void write_field(std::string_view field, int depth, TextBuilder& out) {
    const std::size_t mark = field.find_first_of(":!");
    const std::string_view name = field.substr(0, mark);
    char conversion = '\0';
    std::string_view spec;
    if (mark != std::string_view::npos && field[mark] == '!') {
      if (mark + 1 >= field.size()) runtime_.fail("a '!' in a format lacks its letter.");
      conversion = field[mark + 1];
      spec = field.substr(mark + 2);
      if (!spec.empty() && spec[0] != ':')
        runtime_.fail("expected ':' after a conversion in a format.");
      if (!spec.empty()) spec.remove_prefix(1);
    } else if (mark != std::string_view::npos) {
      spec = field.substr(mark + 1);
    }
    Value value = look_up(name);
    if (conversion == 'r')
      value = make_string(&runtime_, repr(runtime_, value));
    else if (conversion == 's')
      value = make_string(&runtime_, to_text(runtime_, value));
    else if (conversion != '\0')
      runtime_.fail("a format knows the conversions '!r' and '!s'.");
    TextBuilder full_spec(runtime_);
    write(spec, depth - 1 + (spec.empty() ? 1 : 0), full_spec);
    out.append(format_value(runtime_, value, full_spec.text()));
  }

  Value look_up(std::string_view name) {
    const std::size_t end = name.find_first_of(".[");
    const std::string first(name.substr(0, end));
    const std::string_view rest = end == std::string_view::npos ? "" : name.substr(end);
    const bool is_number = first.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) {
      for (const auto& [key, value] : args_.keywords) {
        if (key == first) return follow_field(interpreter_, value, rest);
      }
      runtime_.fail("format() lacks the argument '" + first.substr(0, 50) + "'.");
    }
    if (first.empty() == uses_numbers_ && fields_ > 0) {
      runtime_.fail("a format numbers either all of its fields or none.");
    }
    uses_numbers_ = !first.empty();
    const auto index = first.empty() ? static_cast<std::int64_t>(automatic_++)
                                     : parse_int(runtime_, first, 10).value_or(-1);
    ++fields_;
    if (index < 0 || index >= static_cast<std::int64_t>(args_.positional.size())) {
      runtime_.fail("format() lacks the argument number " + std::to_string(index) + ".");
    }
    return follow_field(interpreter_, args_.positional[static_cast<std::size_t>(index)], rest);
  }

  Interpreter& interpreter_;
  Runtime& runtime_;
  const CallArgs& args_;
  TextBuilder out_;
  std::size_t automatic_ = 0;
  std::size_t fields_ = 0;
  bool uses_numbers_ = false;
  bool marked_ = false;
};

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& args)
      : runtime_(interpreter.runtime()), args_(args), out_(runtime_) {}

  // If a part of the format is marked, all that is written from it is marked.
  MarkedText format(const MarkedText& marked) {
    std::string_view text = marked.text();
    while (true) {
      const std::size_t percent = std::min(text.find('%'), text.size());
      out_.append(MarkedText(std::string(text.substr(0, percent)), marked.is_marked()));
      if (percent == text.size()) break;
      text.remove_prefix(percent + 1);
      write_field(text);
    }
    const bool takes_all = args_.is(Kind::kDict) || (used_ == 0 && args_.is(Kind::kList));
    const std::size_t given = args_.is(Kind::kTuple) ? args_.items().size() : 1;
    if (!takes_all && used_ < given)
      runtime_.fail("the operator '%' has more values than the format has fields.");
    return out_.release();
  }

 private:
  static bool take_any(std::string_view& text, std::string_view chars, char& taken) {
    if (text.empty() || chars.find(text[0]) == std::string_view::npos) return false;
    taken = text[0];
    text.remove_prefix(1);
    return true;
  }

  void write_field(std::string_view& text) {
    std::optional<Value> named;
    if (text.starts_with('(')) {
      const std::size_t end = text.find(')');
      if (end == std::string_view::npos) runtime_.fail("a '(' after '%' is not closed.");
      named = look_up(std::string(text.substr(1, end - 1)));
      text.remove_prefix(end + 1);
    }
    FormatSpec spec;
    char flag = '\0';
    bool left = false, zero = false;
    while (take_any(text, "-+ #0", flag)) {
      left = left || flag == '-';
      zero = zero || flag == '0';
      spec.alternate = spec.alternate || flag == '#';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    }
    spec.width = take_number(text, kMaxWidth);
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      spec.precision = static_cast<int>(take_number(text, kMaxPrecision));
    }
    char type = '\0';
    if (!take_any(text, "sdiufFeEgGxXorca%", type))
      runtime_.fail("a '%' in a format lacks its type.");
    if (type == '%') return out_.append("%");
    spec.align = left ? '<' : '>';
    if (zero && !left && type != 's' && type != 'r') {
      spec.fill = "0";
      spec.align = '=';
    }
    write_value(spec, type, named ? *named : next());
  }

  std::size_t take_number(std::string_view& text, std::size_t limit) const {
    std::size_t number = 0;
    char digit = '\0';
    while (take_any(text, "0123456789", digit)) {
      number = number * 10 + static_cast<std::size_t>(digit - '0');
      if (number > limit) {
        runtime_.fail("a width or precision in a format is above " + std::to_string(limit) + ".");
      }
    }
    return number;
  }

  void write_value(FormatSpec spec, char type, const Value& value) {
    if (type == 's' || type == 'r' || type == 'a') {
      const Value text =
          make_string(&runtime_, type == 's' ? to_text(runtime_, value) : repr(runtime_, value));
      return out_.append(format_text(runtime_, text, spec));
    }
    if (type == 'c' && value.is_string()) {
      if (count_code_points(value.text()) != 1) runtime_.fail("'%c' takes one character.");
      return out_.append(format_text(runtime_, value, spec));
    }
    if (!value.is_number()) {
      if (value.is_undefined()) runtime_.fail(value.undefined_reason() + ".");
      runtime_.fail(std::string("'%") + type + "' takes a number, not a " +
                    std::string(type_name(value)) + ".");
    }
    const bool is_int_type = std::string_view("diuxXoc").find(type) != std::string_view::npos;
    if (!is_int_type) {
      spec.type = type;
      return out_.append(format_float(value, spec));
    }
    if (!value.is_integer() && (type == 'x' || type == 'X' || type == 'o' || type == 'c')) {
      runtime_.fail(std::string("'%") + type + "' takes an int, not a float.");
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    const auto whole =
        value.is_integer() ? value : Value::integer(float_to_int(runtime_, value.as_double()));
    // The precision of an int is its least number of digits.
    const auto least = static_cast<std::size_t>(std::max(spec.precision, 0));
    spec.precision = -1;
    if (least > 0) {
      FormatSpec digits;
      digits.type = spec.type;
      digits.sign = spec.sign;
      digits.fill = "0";
      digits.align = '=';
      digits.width = least + (whole.as_int() < 0 || spec.sign != '-' ? 1 : 0);
      const Value text = make_string(&runtime_, format_int(runtime_, whole, digits));
      spec.type = '\0';
      if (spec.align == '=') spec.align = '>';
      return out_.append(format_text(runtime_, text, spec));
    }
    out_.append(format_int(runtime_, whole, spec));
  }

  Value look_up(const std::string& name) {
    if (!args_.is(Kind::kDict)) runtime_.fail("'%(" + name.substr(0, 50) + ")' needs a dict.");
    const Value* found = args_.dict().find(name);
    if (found == nullptr) runtime_.fail("the format lacks the value '" + name.substr(0, 50) + "'.");
    return *found;
  }

  Value next() {
    const std::size_t at = used_++;
    if (args_.is(Kind::kTuple) && at < args_.items().size()) return args_.items()[at];
    if (!args_.is(Kind::kTuple) && at == 0) return args_;
    runtime_.fail("the operator '%' has fewer values than the format has fields.");
  }

  Runtime& runtime_;
  const Value& args_;
  TextBuilder out_;
  std::size_t used_ = 0;
};

}  // namespace

MarkedText format_braces(Interpreter& interpreter, const MarkedText& format, const CallArgs& args) {
  return BraceFormatter(interpreter, args).format(format);
}

MarkedText format_percent(Interpreter& interpreter, const MarkedText& format, const Value& args) {
  return PercentFormatter(interpreter, args).format(format);
}

}  // namespace quire::chat_internal
