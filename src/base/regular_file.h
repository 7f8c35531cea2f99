#pragma once
// A file that is open for reading: no folder, device or pipe.
//
// Thread safety: one thread at a time.
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace quire {

class RegularFile {
 public:
  // Throws Error where there is no readable regular file (or a link to one).
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  // The size when the file was opened.
  size_t size() const { return static_cast<size_t>(opened_.st_size); }
  // Reads the file's first to.size() bytes. Throws Error where the file has fewer by now.
  void read(std::span<std::byte> to) const;
  // Throws Error if the file was written to since it was opened.
  void check_unchanged() const;
  // Throws Error with `what` and the system's reason, errno.
  [[noreturn]] void fail(const char* what) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  struct stat opened_ {};
};

// The content of a file in memory of its own, so that later writes to the file do not change it.
struct FileBytes {
  std::unique_ptr<std::byte[]> data = {};
  size_t size = 0;

  std::span<const std::byte> bytes() const { return {data.get(), size}; }
};

// Throws Error where there is no readable regular file, or it is written to meanwhile.
FileBytes read_file_bytes(const std::filesystem::path& path);

}  // namespace quire
