// Global functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <locale.h>  // NOLINT(modernize-deprecated-headers): newlocale is POSIX
#include <array>
#include <ctime>

#include "chat/builtins.h"
#include "chat/interpreter.h"
#include "chat/text.h"
#include "quire/error.h"

namespace quire::chat_internal {
namespace {

// The longest range that Jinja's sandbox allows.
constexpr std::uint64_t kMaxRange = 100'000;

Value make_range(Interpreter& interpreter, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "range()", args);
  const bool has_start = args.positional.size() > 1;
  auto range = std::make_shared<RangeObject>();
  if (has_start) range->start = reader.integer("start", 0);
  const Value stop = reader.required("stop");
  if (!stop.is_integer()) reader.fail_type("stop", "an int", stop);
  range->stop = stop.as_int();
  range->step = reader.integer("step", 1);
  reader.done();
  if (range->step == 0) runtime.fail("the step of range() must not be 0.");
  // Unsigned, as the distance of two ints may not fit in one.
  const bool up = range->step > 0;
  const bool is_empty = up ? range->start >= range->stop : range->start <= range->stop;
  const auto start = static_cast<std::uint64_t>(range->start);
  const auto end = static_cast<std::uint64_t>(range->stop);
  const auto step = static_cast<std::uint64_t>(range->step);
  const std::uint64_t length =
      is_empty ? 0 : ((up ? end - start : start - end) - 1) / (up ? step : 0 - step) + 1;
  if (length > kMaxRange) {
    runtime.fail("range() is longer than " + std::to_string(kMaxRange) + " numbers.");
  }
  range->length = static_cast<std::int64_t>(length);
  range->charge(&runtime, 96);
  return Value(Kind::kRange, std::move(range));
}

Value pair_part(Runtime& runtime, const Items& pair, std::size_t at) {
  if (pair.size() != 2) runtime.fail("a dict is made from pairs of a key and a value.");
  return pair[at];
}

// dict(mapping or pairs, **keywords), as Python has it.
Value make_dict(Interpreter& interpreter, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  if (args.positional.size() > 1) runtime.fail("dict() takes at most one positional argument.");
  DictBuilder dict(runtime);
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) dict.set(key, value);
    } else {
      for_each(runtime, source, [&](const Value& item) {
        const Items pair = to_items(runtime, item);
        dict.set(pair_part(runtime, pair, 0), pair_part(runtime, pair, 1));
        return true;
      });
    }
  }
  for (auto& [name, value] : args.keywords) {
    dict.set(make_string(&runtime, marked_name(name)), std::move(value));
  }
  return dict.take();
}

Value make_namespace(Interpreter& interpreter, CallArgs& args) {
  const Value attributes = make_dict(interpreter, args);
  Value name_space = interpreter.make_namespace();
  for (const auto& [key, value] : attributes.dict().entries) {
    if (!key.is_string() || key.text().starts_with('_')) {
      interpreter.runtime().fail(
          "a namespace's attribute must be a name that does not start with '_'.");
    }
    name_space.name_space().set(key.text(), value);
    interpreter.runtime().step(1 + name_space.name_space().attributes.size() / 4);
  }
  return name_space;
}

Value raise_exception(Interpreter& interpreter, CallArgs& args) {
  ArgReader reader(interpreter.runtime(), "raise_exception()", args);
  const Value message = reader.required("message");
  reader.done();
  throw Error("The chat template refuses this chat: " +
              to_text(interpreter.runtime(), message).text());
}

// Python's datetime.strftime in the C locale.
std::string format_time(Runtime& runtime, const std::string& format,
                        std::chrono::local_seconds now) {
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  std::tm tm{};
  tm.tm_year = static_cast<int>(date.year()) - 1900;
  tm.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  tm.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  tm.tm_hour = static_cast<int>(time.hours().count());
  tm.tm_min = static_cast<int>(time.minutes().count());
  tm.tm_sec = static_cast<int>(time.seconds().count());
  tm.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  const auto new_year = std::chrono::local_days(date.year() / std::chrono::January / 1);
  tm.tm_yday = static_cast<int>((day - new_year).count());
  tm.tm_isdst = -1;

  // A local time without a zone: %z and %Z are empty. A trailing mark tells empty from too long.
  std::string plain;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (format[i] != '%' || next == '\0') {
      plain += format[i];
      continue;
    }
    ++i;
    if (next == 'f')
      plain += "000000";
    else if (next != 'z' && next != 'Z')
      (plain += '%') += next;
  }
  plain += '|';
  std::array<char, 8192> buffer{};
  const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::size_t length = strftime_l(buffer.data(), buffer.size(), plain.c_str(), &tm, locale);
  freelocale(locale);
  if (length == 0) runtime.fail("the text of strftime_now() is too long.");
  return std::string(buffer.data(), length - 1);
}

Value strftime_now(Interpreter& interpreter, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "strftime_now()", args);
  const std::string format = reader.string("format");
  reader.done();
  if (format.size() > 1024 || format.find('\0') != std::string::npos) {
    runtime.fail("the format of strftime_now() is too long or holds a zero byte.");
  }
  std::string text = format_time(runtime, format, interpreter.now());
  if (find_invalid_utf8(text) != std::string::npos) {
    runtime.fail("the format of strftime_now() cuts a character in two.");
  }
  return make_string(&runtime, std::move(text));
}

// cycler(a, b, ...): next() gives one after the other.
class Cycler : public AttributeObject, public std::enable_shared_from_this<Cycler> {
 public:
  Cycler(Runtime& runtime, Items items) : items_(make_tuple(&runtime, std::move(items))) {
    depth = items_.depth() + 1;
    runtime.check_depth(depth);
    charge(&runtime, 128);
  }
  std::string_view type_name() const override { return "Cycler"; }

  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override {
    Runtime& runtime = interpreter.runtime();
    if (name == "current") return items_.items()[at_];
    if (name == "next") {
      return make_function(
          &runtime, "next",
          [self = shared_from_this()](Interpreter&, CallArgs&) {
            Value value = self->items_.items()[self->at_];
            self->at_ = (self->at_ + 1) % self->items_.items().size();
            return value;
          },
          depth);
    }
    if (name == "reset") {
      return make_function(
          &runtime, "reset",
          [self = shared_from_this()](Interpreter&, CallArgs&) {
            self->at_ = 0;
            return Value::none();
          },
          depth);
    }
    return std::nullopt;
  }

  Value call(Interpreter& interpreter, CallArgs&) override {
    interpreter.runtime().fail("a Cycler cannot be called; use its next().");
  }

 private:
  Value items_;
  std::size_t at_ = 0;
};

Value make_cycler(Interpreter& interpreter, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  if (args.positional.empty() || !args.keywords.empty()) {
    runtime.fail("cycler() needs at least one item and no named arguments.");
  }
  return Value(Kind::kObject, std::make_shared<Cycler>(runtime, std::move(args.positional)));
}

// joiner(separator): empty the first time, the separator from then on.
Value make_joiner(Interpreter& interpreter, CallArgs& args) {
  Runtime& runtime = interpreter.runtime();
  ArgReader reader(runtime, "joiner()", args);
  const MarkedText separator = reader.marked("sep", ", ");
  reader.done();
  return make_function(
      &runtime, "joiner",
      [separator, used = std::make_shared<bool>(false)](Interpreter& caller, CallArgs&) {
        const bool first = !std::exchange(*used, true);
        return make_string(&caller.runtime(), first ? MarkedText() : separator);
      });
}

using Global = Value (*)(Interpreter&, CallArgs&);
constexpr std::array<std::pair<std::string_view, Global>, 7> kGlobals = {{
    {"range", make_range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
}};

}  // namespace

std::optional<Value> find_global(Interpreter& interpreter, std::string_view name) {
  for (const auto& [global, function] : kGlobals) {
    if (global == name) return make_function(&interpreter.runtime(), std::string(name), function);
  }
  return std::nullopt;
}

std::chrono::local_seconds Interpreter::now() const {
  if (now_) return *now_;
  const std::time_t clock = std::time(nullptr);
  std::tm tm{};
  localtime_r(&clock, &tm);
  const auto date = std::chrono::year(tm.tm_year + 1900) / (tm.tm_mon + 1) / tm.tm_mday;
  return std::chrono::local_days(date) + std::chrono::hours(tm.tm_hour) +
         std::chrono::minutes(tm.tm_min) + std::chrono::seconds(std::min(tm.tm_sec, 59));
}

}  // namespace quire::chat_internal
