#pragma once
// A folder that appears under its name only when all of it is written.
//
// Thread safety: one thread at a time.
#include <filesystem>
#include <string>
#include <system_error>

namespace quire {

class OutputFolder {
 public:
  // Makes a folder to write in, whose name ends in ".partial". It lies beside `path`; or, where
  // `path` is an empty folder, inside it under a name that begins with `inner_name`, because `path`
  // may be a mount point and keeps its owner and mode. Throws Error where `path` is a file or a
  // folder that is not empty, and where the new folder cannot be made.
  OutputFolder(const std::filesystem::path& path, const std::string& inner_name);
  // Removes what was written, unless put_in_place() was called.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& partial() const { return partial_; }
  // Waits until everything is on the disk, then gives the folder its name; or moves the files,
  // config.json last, into the folder that was there. So a folder with a config.json is complete.
  void put_in_place();

 private:
  std::error_code rename_folder(const std::filesystem::path& complete) const;
  std::error_code move_files(const std::filesystem::path& complete) const;

  std::filesystem::path path_;
  bool is_inside_ = false;  // partial_ lies in path_, which was there
  std::filesystem::path partial_;
};

}  // namespace quire
