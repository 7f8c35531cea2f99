#pragma once
// Downloads one file from the hub into the cache's blobs, over as many connections as that takes,
// and checks it.
//
// Thread safety: free functions; a client serves one thread at a time.
#include <functional>
#include <stop_token>

#include "hub/hub_cache.h"
#include "hub/hub_request.h"

namespace quire {

struct BlobCallbacks {
  std::function<void(int64_t)> on_position;  // bytes of the file that are there; may go back
  NoteCallback on_note;                      // what is waited for or done again, and why
};

enum class BlobOutcome { kDownloaded, kWasThere, kStopped };

// Downloads the file from `url`, unless another process has done so, and continues what an earlier
// attempt left. A file with a wrong hash is removed and downloaded again, once. Throws Error where
// the file cannot be downloaded; the part that has come is kept for the next time.
BlobOutcome download_blob(HubClient& client, const std::string& url, const HubTarget& target,
                          const RemoteFile& file, const HubCache& cache,
                          const std::stop_token& stop, const BlobCallbacks& callbacks);

}  // namespace quire
