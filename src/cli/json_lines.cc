#include "cli/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>

#include "base/json_text.h"
#include "quire/error.h"

namespace quire::cli {

std::vector<int32_t> token_ids_from_json(const Json& value, std::string_view where) {
  if (!value.is_array()) {
    throw Error(fmt::format("{}: expected an array of token ids, got {}", where, json_kind(value)));
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool fits =
        item.is_number_integer() &&
        (!item.is_number_unsigned() ||
         item.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) &&
        item.get<int64_t>() >= 0;
    if (!fits) {
      throw Error(fmt::format("{}[{}]: expected a token id, an integer of at least 0, got {}",
                              where, ids.size(), json_kind(item)));
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::ifstream open_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw Error(fmt::format("cannot read {}: {}", path, std::strerror(file ? EISDIR : errno)));
  }
  return file;
}

std::optional<std::string> read_line(std::istream& in, std::string_view where) {
  std::string line;
  if (std::streambuf* buffer = in.rdbuf(); buffer != nullptr) {
    for (int c = buffer->sbumpc(); c != std::streambuf::traits_type::eof(); c = buffer->sbumpc()) {
      if (c == '\n') return line;
      if (line.size() >= kMaxLineBytes) {
        throw Error(fmt::format("{}: the line is longer than {} MiB", where, kMaxLineBytes >> 20));
      }
      line.push_back(static_cast<char>(c));
    }
  }
  if (line.empty()) return std::nullopt;
  return line;
}

}  // namespace quire::cli
