#include "chat/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/utf8.h"

namespace quire::chat_internal {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Code points whose upper case is longer than one code point (Unicode's SpecialCasing.txt, the
// unconditional part without Greek iota subscripts, which utf8proc's simple mapping serves).
struct Expansion {
  char32_t from;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};
constexpr Expansion kExpansions[] = {
    {0x00df, {'S', 'S', 0}, {'S', 's', 0}},
    {0x0149, {0x02bc, 'N', 0}, {0x02bc, 'N', 0}},
    {0x01f0, {'J', 0x030c, 0}, {'J', 0x030c, 0}},
    {0x0587, {0x0535, 0x0552, 0}, {0x0535, 0x0582, 0}},
    {0x1e96, {'H', 0x0331, 0}, {'H', 0x0331, 0}},
    {0x1e97, {'T', 0x0308, 0}, {'T', 0x0308, 0}},
    {0x1e98, {'W', 0x030a, 0}, {'W', 0x030a, 0}},
    {0x1e99, {'Y', 0x030a, 0}, {'Y', 0x030a, 0}},
    {0x1e9a, {'A', 0x02be, 0}, {'A', 0x02be, 0}},
    {0xfb00, {'F', 'F', 0}, {'F', 'f', 0}},
    {0xfb01, {'F', 'I', 0}, {'F', 'i', 0}},
    {0xfb02, {'F', 'L', 0}, {'F', 'l', 0}},
    {0xfb03, {'F', 'F', 'I'}, {'F', 'f', 'i'}},
    {0xfb04, {'F', 'F', 'L'}, {'F', 'f', 'l'}},
    {0xfb05, {'S', 'T', 0}, {'S', 't', 0}},
    {0xfb06, {'S', 'T', 0}, {'S', 't', 0}},
};

const Expansion* find_expansion(char32_t c) {
  const auto* found = std::find_if(std::begin(kExpansions), std::end(kExpansions),
                                   [c](const Expansion& e) { return e.from == c; });
  return found == std::end(kExpansions) ? nullptr : found;
}

void append_all(std::string& out, const std::array<char32_t, 3>& code_points) {
  for (char32_t c : code_points) {
    if (c != 0) append_utf8(out, c);
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const Expansion* e = find_expansion(c)) {
    append_all(out, e->upper);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const Expansion* e = find_expansion(c)) {
    append_all(out, e->title);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kSmallSigma = 0x3c3;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr char32_t kCapitalIWithDot = 0x130;

// A capital sigma becomes a final one after a letter and not before one.
char32_t lower_sigma(std::string_view text, std::size_t start, std::size_t end) {
  bool after = false;
  for (std::size_t pos = 0; pos < start;) after = is_cased(next_code_point(text, pos));
  const bool before = end < text.size() && is_cased(next_code_point(text, end));
  return after && !before ? kFinalSigma : kSmallSigma;
}

void append_lower(std::string& out, std::string_view text, std::size_t start, std::size_t end,
                  char32_t c) {
  if (c == kCapitalSigma) {
    // Only the neighbours matter: a short window keeps a text of sigmas linear.
    std::size_t from = start > 16 ? start - 16 : 0;
    while (from < start && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
    append_utf8(out, lower_sigma(text.substr(from), start - from, end - from));
  } else if (c == kCapitalIWithDot) {
    out += 'i';
    append_utf8(out, 0x307);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_hex(std::string& out, char32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> shift) & 0xf];
  }
}

void append_json_unicode(std::string& out, char32_t c) {
  out += "\\u";
  append_hex(out, c, 4);
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(&text[pos]),
                                         static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
    if (length <= 0) return pos;
    pos += static_cast<std::size_t>(length);
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, std::size_t& pos) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[pos + i]));
  };
  const std::size_t length = utf8_length(static_cast<unsigned char>(text[pos]));
  char32_t c = byte(0);
  if (length == 2) {
    c = (c & 0x1f) << 6 | (byte(1) & 0x3f);
  } else if (length == 3) {
    c = (c & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  } else if (length == 4) {
    c = (c & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
  pos += length;
  return c;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    pos += utf8_length(static_cast<unsigned char>(text[pos]));
    --index;
  }
  return pos;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

std::size_t find_first(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  if (wanted.empty()) return from;
  const void* found = memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= 16) return text.rfind(wanted);  // short enough to be linear
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const std::size_t found = find_first(reversed_text, reversed_wanted);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left,
                       bool right) {
  std::vector<char32_t> wanted;
  if (chars != nullptr) {
    for (std::size_t pos = 0; pos < chars->size();) wanted.push_back(next_code_point(*chars, pos));
    std::sort(wanted.begin(), wanted.end());
  }
  const auto strippable = [&](char32_t c) {
    return chars == nullptr ? is_space(c) : std::binary_search(wanted.begin(), wanted.end(), c);
  };
  std::size_t begin = 0;
  while (left && begin < text.size()) {
    std::size_t next = begin;
    if (!strippable(next_code_point(text, next))) break;
    begin = next;
  }
  std::size_t end = text.size();
  while (right && end > begin) {
    std::size_t start = end - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    std::size_t pos = start;
    if (!strippable(next_code_point(text, pos))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) append_upper(out, next_code_point(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    const char32_t c = next_code_point(text, pos);
    append_lower(out, text, start, pos, c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::string out;
  std::size_t pos = 0;
  append_title(out, next_code_point(text, pos));
  return out + to_lower(text.substr(pos));
}

std::string title_case(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    const char32_t c = next_code_point(text, pos);
    if (in_word) {
      append_lower(out, text, start, pos, c);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    const char32_t c = next_code_point(text, pos);
    if (is_upper(c)) {
      append_lower(out, text, start, pos, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  // Python's float_repr_style "short": plain notation for exponents -4 to 15.
  if (exponent >= -4 && exponent < 16) {
    std::array<char, 40> fixed{};
    const auto fixed_end =
        std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed)
            .ptr;
    std::string out(fixed.data(), fixed_end);
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
  }
  return std::string(text);
}

std::string string_repr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      append_hex(out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
  }
  out += quote;
  return out;
}

std::string json_quote(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7e && c < 0x10000)) {
          append_json_unicode(out, c);
        } else if (ensure_ascii && c >= 0x10000) {
          append_json_unicode(out, 0xd800 + ((c - 0x10000) >> 10));
          append_json_unicode(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
        } else {
          append_utf8(out, c);
        }
    }
  }
  out += '"';
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends,
                                          std::size_t max_parts) {
  std::vector<std::string_view> lines;
  std::size_t line_start = 0;
  for (std::size_t pos = 0; pos < text.size() && lines.size() <= max_parts;) {
    const std::size_t end = pos;
    const char32_t c = next_code_point(text, pos);
    const bool ends_line = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                           c == 0x2028 || c == 0x2029;
    if (!ends_line) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(line_start, (keep_ends ? pos : end) - line_start));
    line_start = pos;
  }
  if (line_start < text.size()) lines.push_back(text.substr(line_start));
  return lines;
}

}  // namespace quire::chat_internal
