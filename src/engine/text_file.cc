#include "engine/text_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/utf8.h"
#include "quire/error.h"

namespace quire {

TextFile::TextFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(MappedFile::open(path_)),
      has_lines_(path_.extension() == ".jsonl") {}

std::optional<std::string_view> TextFile::next() {
  if (has_lines_) return next_line();
  if (std::exchange(position_, file_.bytes().size()) == file_.bytes().size()) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(file_.bytes().data()),
                          file_.bytes().size());
}

std::optional<std::string_view> TextFile::next_line() {
  const std::string_view all(reinterpret_cast<const char*>(file_.bytes().data()),
                             file_.bytes().size());
  while (position_ < all.size()) {
    const std::string_view line = all.substr(position_, all.find('\n', position_) - position_);
    position_ += line.size() + 1;
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", path_.string(), line_);
    const nlohmann::ordered_json object = parse_json_object(line, where);
    const auto found = object.find("text");
    if (found == object.end() || !found->is_string()) {
      throw Error(fmt::format("{}: expected an object with a \"text\".", where));
    }
    text_ = found->get<std::string>();
    return text_;
  }
  return std::nullopt;
}

std::string_view leading_lines(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  const size_t last_break = text.substr(0, max_bytes).rfind('\n');
  if (last_break != std::string_view::npos) return text.substr(0, last_break + 1);
  size_t end = max_bytes;
  while (end > 1 && !begins_character(static_cast<uint8_t>(text[end]))) --end;
  return text.substr(0, end);
}

}  // namespace quire
