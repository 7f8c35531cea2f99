#pragma once
// A file that a command writes at its end, and that stays unchanged until then.
//
// Thread safety: one thread at a time.
#include <filesystem>
#include <string>
#include <string_view>

namespace quire::cli {

class OutputFile {
 public:
  // Checks that the file can be written, so that an error comes before any work; the check leaves
  // nothing behind. Throws Error, naming `option`, where the file cannot be written, where `path`
  // exists and is no regular file, and where it lies under /dev or /proc.
  OutputFile(const std::filesystem::path& path, std::string_view option);

  // Replaces the file by `text` and keeps its mode, or throws Error and leaves it unchanged. Links
  // stay; their target is replaced.
  void write(std::string_view text) const;

 private:
  std::filesystem::path path_;  // without links
};

}  // namespace quire::cli
