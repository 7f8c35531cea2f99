#pragma once
// A repository's folder in the Hugging Face cache, laid out as huggingface_hub does it:
//
//   .locks/models--org--name/<id>.lock
//   models--org--name/blobs/<id>               content, under the name of its hash
//   models--org--name/snapshots/<commit>/...   relative links into blobs
//   models--org--name/refs/<revision>          the commit that a branch or tag stands for
//
// Nothing appears under its final name before it is whole, checked and on the disk: a process
// killed at any moment leaves files that end in .incomplete, and never a blob, link or ref that
// promises what is not there. Several processes may work on one folder, huggingface_hub's among
// them.
//
// Thread safety: const use is free, but for publish(): one thread at a time.
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hub/repo_listing.h"

namespace quire {

// An exclusive lock on a file, held until it is destroyed; the file stays.
class FileLock {
 public:
  // Waits until others release it, calling `on_wait` once if it has to wait. Nothing if stopped
  // meanwhile. Throws Error where the file or its lock cannot be had.
  static std::optional<FileLock> acquire(const std::filesystem::path& path,
                                         const std::stop_token& stop,
                                         const std::function<void()>& on_wait);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

class HubCache {
 public:
  // `root` is the cache, `repository` a name such as "org/name". Touches nothing.
  HubCache(const std::filesystem::path& root, const std::string& repository);

  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path blob(const ContentId& id) const;
  std::filesystem::path incomplete_blob(const ContentId& id) const;
  std::filesystem::path lock_file(const std::string& name) const;

  // Whether the snapshot has that file with that size; whether the blobs have it.
  bool has_file(const std::string& commit, const RemoteFile& file) const;
  bool has_blob(const RemoteFile& file) const;
  // Bytes of the file that an interrupted download left.
  int64_t incomplete_bytes(const RemoteFile& file) const;
  // Whether refs/<revision> names the commit. A revision that is the commit needs none.
  bool has_ref(const std::string& revision, const std::string& commit) const;

  // Makes the folders that downloads need.
  void prepare() const;
  // Bytes that this user may still write in the cache.
  int64_t free_bytes() const;

  // Links the files, whose blobs are there, into the snapshot; the files that make a folder a model
  // come last. Then writes the ref. False if stopped while another process did the same.
  bool publish(const std::string& revision, const std::string& commit,
               const std::vector<RemoteFile>& files, const std::stop_token& stop) const;

 private:
  std::filesystem::path ref(const std::string& revision) const;
  void link(const std::string& commit, const RemoteFile& file) const;
  void write_ref(const std::string& revision, const std::string& commit) const;

  std::filesystem::path root_;
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

namespace hub_internal {

// When this returns, renames and new files in the folder are on the disk.
void sync_folder(const std::filesystem::path& folder);

// Throws Error: "PATH: cannot WHAT: <what the system says>".
[[noreturn]] void throw_system_error(const std::filesystem::path& path, const std::string& what);

}  // namespace hub_internal
}  // namespace quire
