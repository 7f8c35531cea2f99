#pragma once
// A file that a command writes at its end, and that stays what it was until then.
//
// Thread safety: one thread at a time.
#include <filesystem>
#include <string_view>

namespace quire::cli {

class OutputFile {
 public:
  // Makes <path>.partial beside it, so that what cannot be written is said before any work. Throws
  // Error, with `option` for who asked, where that fails or `path` is no regular file.
  OutputFile(const std::filesystem::path& path, std::string_view option);
  // Removes what is partial.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Replaces the file by `text`, or leaves it as it was and throws Error.
  void write(std::string_view text);

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
};

}  // namespace quire::cli
