#pragma once
// Text as Python sees it: code points, Unicode whitespace and case, str() of floats.
//
// Every string here is valid UTF-8 (checked where it comes in). Pure functions, safe in any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::chat_internal {

// Offset of the first byte that is not valid UTF-8 (surrogates and overlong forms are not), or
// npos.
std::size_t find_invalid_utf8(std::string_view text);

// Length in bytes of the code point that starts with `lead`.
inline std::size_t utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// The code point at `pos`, which is moved past it.
char32_t next_code_point(std::string_view text, std::size_t& pos);

std::size_t count_code_points(std::string_view text);
bool is_ascii(std::string_view text);

// Byte offset of the code point with number `index`; text.size() where there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);

// str.isspace() of one code point.
bool is_space(char32_t code_point);
// str.isprintable() of one code point.
bool is_printable(char32_t code_point);
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);

// The first occurrence of `wanted` at or after `from`, and the last one of all, or npos. Linear
// time for any texts, unlike std::string's own search.
std::size_t find_first(std::string_view text, std::string_view wanted, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view wanted);

// Strips code points in `chars` from the chosen ends; whitespace where `chars` is null.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// First code point in title case, the rest in lower case, as str.capitalize().
std::string capitalize(std::string_view text);
// Every run of letters capitalised, as str.title().
std::string title_case(std::string_view text);
std::string swap_case(std::string_view text);

// repr() of a float: the shortest digits that read back as the same value.
std::string float_repr(double value);

// repr() of a str.
std::string string_repr(std::string_view text);

// `text` as a JSON string with its quotes, as Python's json module writes it.
std::string json_quote(std::string_view text, bool ensure_ascii);

// Parts of `text` between line ends, as str.splitlines(): at most `max_parts` + 1 of them.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends,
                                          std::size_t max_parts);

}  // namespace quire::chat_internal
