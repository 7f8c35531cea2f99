#pragma once
// The texts of a file that calibrates or measures a model: the file is one text, or, with the
// extension .jsonl, each line holds one as {"text": ...}.
//
// Memory: one text at a time; the file is mapped. Thread safety: one thread at a time.
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/mapped_file.h"

namespace quire {

class TextFile {
 public:
  // Throws Error where there is no readable regular file.
  explicit TextFile(std::filesystem::path path);

  // The next text, valid until the next call; nothing after the last. Throws Error naming the line
  // where a line of a .jsonl holds anything else.
  std::optional<std::string_view> next();

 private:
  std::optional<std::string_view> next_line();

  std::filesystem::path path_;
  MappedFile file_;
  bool has_lines_;
  size_t position_ = 0;
  int64_t line_ = 0;
  std::string text_;  // of a line
};

// The first lines of `text`, at most `max_bytes` in all; a longer first line is cut between two
// characters. All of `text` if it is shorter.
std::string_view leading_lines(std::string_view text, size_t max_bytes);

}  // namespace quire
