#include "grammar/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>
#include <unordered_set>

#include "base/hex_digit.h"
#include "base/json_writer.h"
#include "base/utf8.h"
#include "grammar/decimal.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

class TreeParser {
 public:
  TreeParser(std::string_view text, int max_depth, Budget* budget)
      : text_(text), max_depth_(max_depth), budget_(budget) {}

  JsonTree parse() {
    skip_space();
    JsonTree value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("text after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(fmt::format("not valid JSON at byte {}: {}", at_, what));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  JsonTree parse_value(int depth) {
    if (++num_values_ > kMaxTreeValues) fail(fmt::format("more than {} values", kMaxTreeValues));
    if (budget_ != nullptr) {
      budget_->step();
      budget_->take(2 * sizeof(JsonTree));  // in vectors that grow
    }
    const size_t begin = at_;
    JsonTree value;
    const char c = peek();
    if (c == '{' || c == '[') {
      if (depth >= max_depth_) fail(fmt::format("nested deeper than {}", max_depth_));
      ++at_;
      c == '{' ? parse_members(value, depth + 1) : parse_items(value, depth + 1);
    } else if (c == '"') {
      value.kind = JsonTree::Kind::kString;
      value.text = parse_string();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      value.kind = JsonTree::Kind::kNumber;
      skip_number();
    } else if (text_.substr(at_).starts_with("true")) {
      value.kind = JsonTree::Kind::kTrue;
      at_ += 4;
    } else if (text_.substr(at_).starts_with("false")) {
      value.kind = JsonTree::Kind::kFalse;
      at_ += 5;
    } else if (text_.substr(at_).starts_with("null")) {
      at_ += 4;
    } else {
      fail("expected a value");
    }
    value.raw = text_.substr(begin, at_ - begin);
    return value;
  }

  void parse_items(JsonTree& value, int depth) {
    value.kind = JsonTree::Kind::kArray;
    skip_space();
    if (take(']')) return;
    while (true) {
      skip_space();
      value.items.push_back(parse_value(depth));
      skip_space();
      if (take(']')) return;
      if (!take(',')) fail("expected ',' or ']'");
    }
  }

  void parse_members(JsonTree& value, int depth) {
    value.kind = JsonTree::Kind::kObject;
    skip_space();
    if (take('}')) return;
    while (true) {
      skip_space();
      if (peek() != '"') fail("expected a key");
      std::string key = parse_string();
      skip_space();
      if (!take(':')) fail("expected ':'");
      skip_space();
      value.members.push_back({std::move(key), parse_value(depth)});
      skip_space();
      if (take('}')) break;
      if (!take(',')) fail("expected ',' or '}'");
    }
    std::unordered_set<std::string_view> names;
    for (const auto& member : value.members) {
      if (!names.insert(member.first).second) {
        fail(fmt::format("the key \"{}\" is given twice", member.first));
      }
    }
  }

  std::string parse_string() {
    std::string out;
    ++at_;
    while (true) {
      if (at_ >= text_.size()) fail("a string without an end");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') break;
      if (c < 0x20) fail("a control character in a string");
      if (c == '\\') {
        parse_escape(out);
        continue;
      }
      const size_t length = utf8_length(text_, at_);
      if (length == 0) fail("not valid UTF-8");
      out.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return out;
  }

  void parse_escape(std::string& out) {
    ++at_;
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
        i != std::string_view::npos) {
      out += kMeanings[i];
      ++at_;
      return;
    }
    if (!take('u')) fail("an unknown escape");
    char32_t code = parse_hex();
    if (code >= 0xDC00 && code < 0xE000) fail("a lone surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (!take('\\') || !take('u')) fail("a lone surrogate");
      const char32_t low = parse_hex();
      if (low < 0xDC00 || low >= 0xE000) fail("a lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  char32_t parse_hex() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int digit = hex_digit(peek());
      if (digit < 0) fail("expected four hexadecimal digits");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    return code;
  }

  void skip_digits() {
    if (peek() < '0' || peek() > '9') fail("expected a digit");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }
  void skip_number() {
    take('-');
    if (!take('0')) skip_digits();
    if (take('.')) skip_digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      skip_digits();
    }
  }

  std::string_view text_;
  int max_depth_;
  Budget* budget_;
  size_t at_ = 0;
  size_t num_values_ = 0;
};

// What most readers make of a number: an integer, or a double where there is a point or exponent.
std::optional<Decimal> as_read(std::string_view number) {
  if (number.find_first_of(".eE") == std::string_view::npos) return Decimal::parse(number);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc()) return Decimal::parse(number);
  // The shortest text of a large double is not its integer.
  constexpr double kExactIntegers = 9007199254740992;
  return Decimal::parse(std::abs(value) < kExactIntegers ? fmt::format("{}", value)
                                                         : fmt::format("{:.0f}", value));
}

void append_canonical(std::string& out, const JsonTree& value, Numbers numbers) {
  switch (value.kind) {
    case JsonTree::Kind::kString:
      out += '"';
      append_json_escaped(out, value.text);
      out += '"';
      return;
    case JsonTree::Kind::kNumber: {
      const std::optional<Decimal> number =
          numbers == Numbers::kExact ? Decimal::parse(value.raw) : as_read(value.raw);
      out += number ? number->scientific() : std::string(value.raw);
      return;
    }
    case JsonTree::Kind::kArray:
      out += '[';
      for (const JsonTree& item : value.items) {
        append_canonical(out, item, numbers);
        out += ',';
      }
      out += ']';
      return;
    case JsonTree::Kind::kObject: {
      std::vector<const JsonMember*> members;
      for (const JsonMember& member : value.members) members.push_back(&member);
      std::ranges::sort(members, {}, [](const auto* member) { return member->first; });
      out += '{';
      for (const auto* member : members) {
        out += '"';
        append_json_escaped(out, member->first);
        out += "\":";
        append_canonical(out, member->second, numbers);
        out += ',';
      }
      out += '}';
      return;
    }
    default:
      out += value.raw;
  }
}

}  // namespace

JsonTree::JsonTree() = default;
JsonTree::~JsonTree() = default;
JsonTree::JsonTree(JsonTree&&) noexcept = default;
JsonTree& JsonTree::operator=(JsonTree&&) noexcept = default;

const JsonTree* JsonTree::find(std::string_view name) const {
  for (const auto& member : members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

std::string_view kind_name(const JsonTree& value) {
  switch (value.kind) {
    case JsonTree::Kind::kNull:
      return "null";
    case JsonTree::Kind::kFalse:
    case JsonTree::Kind::kTrue:
      return "a boolean";
    case JsonTree::Kind::kNumber:
      return "a number";
    case JsonTree::Kind::kString:
      return "a string";
    case JsonTree::Kind::kArray:
      return "an array";
    case JsonTree::Kind::kObject:
      return "an object";
  }
  return "";
}

JsonTree parse_json_tree(std::string_view text, int max_depth, Budget* budget) {
  return TreeParser(text, max_depth, budget).parse();
}

std::string canonical_json(std::string_view text, Numbers numbers) {
  std::string out;
  append_canonical(out, parse_json_tree(text, 100'000), numbers);
  return out;
}

std::string_view beginning(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && !begins_character(static_cast<uint8_t>(text[bytes]))) --bytes;
  return text.substr(0, bytes);
}

size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (at < text.size() && lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool too_long = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool out_of_range = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
  return too_long || out_of_range ? 0 : length;
}

}  // namespace quire::grammar
