#pragma once
// A file on its way into the cache: <blob>.incomplete grows, its hash with it, and becomes the blob
// once the hash is right. What an earlier download left is gone on with.
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

  // Hashes what is there already. False if stopped meanwhile: only destruction makes sense then.
  bool resume(const std::stop_token& stop);

  // Bytes so far; never more than the file's size.
  int64_t size() const { return size_; }

  // Throws Error where the disk takes no more. `bytes` must fit in what is missing.
  void append(std::string_view bytes);
  // Back to nothing.
  void restart();

  // When all bytes are there: makes it the blob if its hash is right and returns nothing; else
  // returns the hash that it has, and is back to nothing.
  std::optional<std::string> finish();
  // Removes the file, so that no later download goes on with it.
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
