#pragma once
// A file on its way into the cache: <blob>.incomplete grows, its hash with it, and becomes the blob
// once the hash is right. It continues what an earlier download left.
//
// Thread safety: one thread at a time. The blob's lock must be held.
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "hub/hub_cache.h"

namespace quire {

class PartialBlob {
 public:
  // Opens or makes the file. Throws Error where it cannot.
  PartialBlob(const HubCache& cache, const RemoteFile& file);
  ~PartialBlob();
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  // Hashes the bytes that are there already. False if stopped meanwhile; then the object can only
  // be destroyed.
  bool resume(const std::stop_token& stop);

  // Bytes so far; never more than the file's size.
  int64_t size() const { return size_; }

  // Throws Error where the disk is full. `bytes` must not be more than is missing.
  void append(std::string_view bytes);
  // Starts again with an empty file.
  void restart();

  // To be called when all bytes are there. If the hash is right, makes the file the blob and
  // returns nothing. Else returns the hash that it has, and starts again with an empty file.
  std::optional<std::string> finish();
  // Removes the file, so that no later download continues it.
  void discard();

 private:
  const HubCache& cache_;
  const RemoteFile& file_;
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
  ContentHash hash_;
};

}  // namespace quire
