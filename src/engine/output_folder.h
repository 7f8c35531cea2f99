#pragma once
// A folder that appears under its name when all of it is written.
//
// Thread safety: one thread at a time.
#include <filesystem>

namespace quire {

class OutputFolder {
 public:
  // Makes a folder beside `path` to write in, whose name ends in ".partial". Throws Error where
  // `path` is a file, or a folder that is not empty, and where none can be made there.
  explicit OutputFolder(const std::filesystem::path& path);
  // Removes what was written, unless it was put in place.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& partial() const { return partial_; }
  // Gives it its name, once what was written is on the disk.
  void put_in_place();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
};

}  // namespace quire
