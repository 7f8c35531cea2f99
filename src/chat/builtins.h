#pragma once
// The filters, tests, methods and global functions that templates may use.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "chat/value.h"

namespace quire::chat_internal {

// A filter gets the value before "|" and its arguments. A test is called the same way and returns a
// truth value.
using Filter = Value (*)(Interpreter& interpreter, const Value& subject, CallArgs& args);
using Test = bool (*)(Interpreter& interpreter, const Value& subject, CallArgs& args);

// Null where there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// Error messages for an unknown name, which list the known ones.
std::string unknown_filter(std::string_view name);
std::string unknown_test(std::string_view name);

// The global variable `name`, e.g. range or namespace, or nullopt.
std::optional<Value> find_global(Interpreter& interpreter, std::string_view name);

// The method `name` of a value, bound to it; nullopt where its type has none. A method that Python
// has but templates may not use (list.append) is an undefined value that says so.
std::optional<Value> find_method(Interpreter& interpreter, const Value& self,
                                 std::string_view name);
std::optional<Value> find_string_method(Interpreter& interpreter, const Value& self,
                                        std::string_view name);

// Takes arguments from a call by position or name, in the manner of a Python signature.
class ArgReader {
 public:
  // `what` names the callee in messages, e.g. "filter 'join'".
  ArgReader(Runtime& runtime, std::string what, CallArgs& args);
  // The next parameter: positional, else the keyword `name`, else nullopt.
  std::optional<Value> next(std::string_view name);
  Value required(std::string_view name);
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  std::string string(std::string_view name);
  std::string string(std::string_view name, std::string_view fallback);
  MarkedText marked(std::string_view name, std::string_view fallback);
  bool boolean(std::string_view name, bool fallback);
  // Throws where arguments are left.
  void done();
  // The Error for an argument of a wrong type.
  [[noreturn]] void fail_type(std::string_view name, std::string_view expected,
                              const Value& got) const;

 private:
  Runtime& runtime_;
  std::string what_;
  CallArgs& args_;
  std::size_t next_ = 0;
};

// str.format() and the % operator of strings.
MarkedText format_braces(Interpreter& interpreter, const MarkedText& format, const CallArgs& args);
MarkedText format_percent(Interpreter& interpreter, const MarkedText& format, const Value& args);
// format(value, spec), e.g. ">10.2f".
MarkedText format_value(Runtime& runtime, const Value& value, std::string_view spec);

// `text` with & < > ' " as HTML entities, as the escape filter writes it.
std::string escape_html(std::string_view text);

// Replaces up to `count` (all where negative) occurrences, as str.replace().
MarkedText replace_all(Runtime& runtime, const MarkedText& text, std::string_view from,
                       const MarkedText& to, std::int64_t count);

// int(text, base) and float(text): nullopt where the text is no number. Throws where an int does
// not fit in 64 bits.
std::optional<std::int64_t> parse_int(Runtime& runtime, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
// int(value) of a float, throwing where it does not fit.
std::int64_t float_to_int(Runtime& runtime, double value);

}  // namespace quire::chat_internal
