#pragma once
// JSON lines, in and out.
#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

// Keeps the order of keys: chat templates print it.
using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

// `value` as token ids. Throws Error, opening with `where`, if it is not an array of token ids.
std::vector<int32_t> token_ids_from_json(const Json& value, std::string_view where);

// One line of JSON. Invalid UTF-8 becomes U+FFFD.
std::string to_line(const Json& value);

// Opens a file for read_line. Throws Error if it cannot be read.
std::ifstream open_lines(const std::string& path);

// The next line of `in` without its line feed, or nothing at the end. Throws Error, opening with
// `where`, for a line over kMaxLineBytes or if reading fails.
std::optional<std::string> read_line(std::istream& in, std::string_view where);

}  // namespace quire::cli
