#pragma once
// Downloads a model from the Hugging Face hub into the local cache, where resolve_model() and
// Hugging Face's own tools find it.
//
// Thread safety: free functions. Any number of threads and processes may pull the same model.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hub/file_selection.h"
#include "hub/hub_settings.h"

namespace quire {

struct PulledFile {
  std::string name;
  int64_t bytes = 0;
  bool downloaded = false;  // now, rather than there already
};

struct PullResult {
  std::filesystem::path folder;  // of the model: snapshots/<commit>
  std::filesystem::path model;   // what to run: the folder, or a GGUF file in it
  std::string commit;
  std::vector<PulledFile> files;
  int64_t bytes = 0;  // of all files
  bool was_complete = false;
};

// Called while a pull runs: each by one thread at a time, though not always by the same. An
// exception from one of them ends the pull.
struct PullCallbacks {
  // Bytes that are there, out of `total`; `at_start` of them were there at the start.
  std::function<void(int64_t done, int64_t at_start, int64_t total)> on_progress;
  std::function<void(const PulledFile&)> on_file;   // a file is complete
  std::function<void(const std::string&)> on_note;  // what is waited for or done again, and why
};

struct PullOptions {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, tag or commit
  FilePatterns patterns;
  std::filesystem::path cache;  // the root; hub_cache_folder() is the usual one
  HubSettings hub;
  int parallel = 4;  // files at once
};

// Makes the model complete in the cache. If it is complete already, one request to the hub shows
// that. Returns nothing if `stop` was requested before it was complete; the next pull continues
// from there. Throws Error where the model cannot be downloaded.
std::optional<PullResult> pull(const PullOptions& options, const PullCallbacks& callbacks,
                               const std::stop_token& stop);

}  // namespace quire
