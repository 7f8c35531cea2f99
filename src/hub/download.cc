#include "hub/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/mapped_file.h"
#include "hub/blob_download.h"
#include "hub/hub_cache.h"
#include "hub/hub_request.h"
#include "hub/model_path.h"
#include "hub/repo_listing.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr size_t kMaxListingBytes = 16 << 20;
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr int64_t kSpareBytes = 16 << 20;  // for links, folders and what others write

// Keeps a small answer in memory.
class TextSink : public HttpSink {
 public:
  explicit TextSink(size_t max_bytes) : max_bytes_(max_bytes) {}
  bool start(const HttpHead&) override { return true; }
  bool write(std::string_view bytes) override {
    if (bytes.size() > max_bytes_ - text_.size()) return false;
    text_ += bytes;
    return true;
  }
  const std::string& text() const { return text_; }

 private:
  size_t max_bytes_;
  std::string text_;
};

// How far the files are, all in all, for the callbacks.
class PullProgress {
 public:
  PullProgress(const PullCallbacks& callbacks, const std::vector<RemoteFile>& files,
               const std::vector<int64_t>& at_start)
      : callbacks_(callbacks), positions_(at_start) {
    for (const RemoteFile& file : files) total_ += file.size;
    for (const int64_t position : at_start) at_start_ += position;
    done_ = at_start_;
  }

  void position(size_t file, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes - positions_[file];
    positions_[file] = bytes;
    if (callbacks_.on_progress) callbacks_.on_progress(done_, std::min(at_start_, done_), total_);
  }
  void complete(const PulledFile& file) {
    const std::lock_guard lock(mutex_);
    if (callbacks_.on_file) callbacks_.on_file(file);
  }
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (callbacks_.on_note) callbacks_.on_note(text);
  }

 private:
  const PullCallbacks& callbacks_;
  std::mutex mutex_;
  std::vector<int64_t> positions_;
  int64_t done_ = 0;
  int64_t at_start_ = 0;
  int64_t total_ = 0;
};

class Pull {
 public:
  Pull(const PullOptions& options, const PullCallbacks& callbacks, const std::stop_token& stop)
      : options_(options),
        callbacks_(callbacks),
        stop_(stop),
        cache_(options.cache, options.repository) {}

  std::optional<PullResult> run();

 private:
  HubTarget target(const std::string& file) const {
    return {options_.hub.endpoint, options_.repository, options_.revision, file,
            !options_.hub.token.empty()};
  }
  std::string file_url(const std::string& commit, const std::string& file) const {
    return fmt::format("{}/{}/resolve/{}/{}", options_.hub.endpoint, options_.repository, commit,
                       url_encode(file, /*keep_slashes=*/true));
  }

  std::optional<RepoListing> fetch_listing();
  std::optional<std::set<std::string>> fetch_shards(const RepoListing& listing);
  bool download(const std::string& commit, const std::vector<RemoteFile>& files, bool is_index);
  void check_space(const std::vector<RemoteFile>& files, const std::vector<size_t>& missing) const;
  bool work(const std::string& commit, const std::vector<RemoteFile>& files,
            const std::vector<size_t>& missing, std::atomic<size_t>& next, PullProgress& progress,
            const std::stop_token& stop);
  bool run_workers(const std::string& commit, const std::vector<RemoteFile>& files,
                   const std::vector<size_t>& missing, PullProgress& progress);
  void note_downloaded(const std::string& name) {
    const std::lock_guard lock(mutex_);
    downloaded_.insert(name);
  }

  const PullOptions& options_;
  const PullCallbacks& callbacks_;
  const std::stop_token& stop_;
  HubCache cache_;
  std::mutex mutex_;
  std::set<std::string> downloaded_;  // guarded by mutex_ while workers run
};

std::optional<RepoListing> Pull::fetch_listing() {
  const std::string url =
      fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.hub.endpoint,
                  options_.repository, url_encode(options_.revision, /*keep_slashes=*/false));
  HubClient client(options_.hub);
  Attempts attempts(target(""), /*first_contact=*/true, stop_, [&](const std::string& text) {
    if (callbacks_.on_note) callbacks_.on_note(text);
  });
  while (true) {
    TextSink sink(kMaxListingBytes);
    const HttpResult result = client.get(url, 0, sink, stop_);
    if (result.end == HttpResult::End::kRefused) {
      throw Error(fmt::format("{}: the hub's list of files is longer than {} bytes.",
                              options_.repository, kMaxListingBytes));
    }
    if (result.end == HttpResult::End::kAnswered && result.head.status == 200) {
      return parse_repo_listing(
          sink.text(),
          fmt::format("{}: the answer of {}", options_.repository, options_.hub.endpoint));
    }
    if (!attempts.failed(result)) return std::nullopt;
  }
}

// The shards that the index lists; it is downloaded if it is not there.
std::optional<std::set<std::string>> Pull::fetch_shards(const RepoListing& listing) {
  const RemoteFile* index = listing.find(kShardIndex);
  check(index != nullptr, "there is no index");
  if (!cache_.has_file(listing.commit, *index) && !download(listing.commit, {*index}, true)) {
    return std::nullopt;
  }
  const auto path = cache_.has_blob(*index) ? cache_.blob(index->id)
                                            : cache_.snapshot(listing.commit) / index->name;
  return parse_index_shards(read_text_file(path, kMaxIndexBytes),
                            fmt::format("{}: {}", options_.repository, kShardIndex));
}

void Pull::check_space(const std::vector<RemoteFile>& files,
                       const std::vector<size_t>& missing) const {
  int64_t needed = kSpareBytes;
  for (const size_t i : missing) needed += files[i].size - cache_.incomplete_bytes(files[i]);
  const int64_t available = cache_.free_bytes();
  if (available < needed) {
    throw Error(fmt::format(
        "{}: the disk has no room for {}: {:.2f} GB are needed, {:.2f} GB are free. Make room, or "
        "set HF_HUB_CACHE to a folder on another disk.",
        options_.cache.string(), options_.repository, static_cast<double>(needed) / 1e9,
        static_cast<double>(available) / 1e9));
  }
}

// Downloads what is missing of the files. False if stopped.
bool Pull::download(const std::string& commit, const std::vector<RemoteFile>& files,
                    bool is_index) {
  std::vector<size_t> missing;
  std::vector<int64_t> at_start(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    if (cache_.has_file(commit, files[i]) || cache_.has_blob(files[i])) {
      at_start[i] = files[i].size;
    } else {
      missing.push_back(i);
      at_start[i] = cache_.incomplete_bytes(files[i]);
    }
  }
  if (missing.empty()) return true;
  cache_.prepare();
  check_space(files, missing);
  PullCallbacks callbacks = callbacks_;
  if (is_index) callbacks.on_progress = nullptr;  // what it is a part of is not known yet
  PullProgress progress(callbacks, files, at_start);
  return run_workers(commit, files, missing, progress);
}

bool Pull::run_workers(const std::string& commit, const std::vector<RemoteFile>& files,
                       const std::vector<size_t>& missing, PullProgress& progress) {
  std::stop_source stop_all;
  const std::stop_callback forward(stop_, [&] { stop_all.request_stop(); });
  std::atomic<size_t> next = 0;
  std::atomic<bool> complete = true;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  {
    std::vector<std::jthread> workers;
    const size_t count = std::min(missing.size(), static_cast<size_t>(options_.parallel));
    for (size_t i = 0; i < count; ++i) {
      workers.emplace_back([&] {
        try {
          if (!work(commit, files, missing, next, progress, stop_all.get_token())) complete = false;
        } catch (...) {  // the first one is told, and the others end
          const std::lock_guard lock(failure_mutex);
          if (!failure) failure = std::current_exception();
          stop_all.request_stop();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  return complete;
}

// The work of one thread: one missing file after the other. False if stopped.
bool Pull::work(const std::string& commit, const std::vector<RemoteFile>& files,
                const std::vector<size_t>& missing, std::atomic<size_t>& next,
                PullProgress& progress, const std::stop_token& stop) {
  HubClient client(options_.hub);
  while (true) {
    const size_t turn = next++;
    if (turn >= missing.size()) return true;
    const size_t i = missing[turn];
    const RemoteFile& file = files[i];
    const BlobCallbacks callbacks{[&](int64_t bytes) { progress.position(i, bytes); },
                                  [&](const std::string& text) { progress.note(text); }};
    const BlobOutcome outcome = download_blob(client, file_url(commit, file.name),
                                              target(file.name), file, cache_, stop, callbacks);
    if (outcome == BlobOutcome::kStopped) return false;
    if (outcome == BlobOutcome::kDownloaded) note_downloaded(file.name);
    progress.complete({file.name, file.size, outcome == BlobOutcome::kDownloaded});
  }
}

std::optional<PullResult> Pull::run() {
  const auto listing = fetch_listing();
  if (!listing) return std::nullopt;
  std::set<std::string> shards;
  if (needs_shard_index(*listing, options_.patterns)) {
    auto found = fetch_shards(*listing);
    if (!found) return std::nullopt;
    shards = std::move(*found);
  }
  const std::vector<RemoteFile> files =
      select_files(*listing, options_.patterns, shards, options_.repository);
  PullResult result;
  result.folder = cache_.snapshot(listing->commit);
  const bool is_gguf = options_.patterns.include.empty() && files.front().name.ends_with(".gguf");
  result.model = is_gguf ? result.folder / files.front().name : result.folder;
  result.commit = listing->commit;
  result.was_complete = cache_.has_ref(options_.revision, listing->commit) &&
                        std::all_of(files.begin(), files.end(), [&](const RemoteFile& file) {
                          return cache_.has_file(listing->commit, file);
                        });
  if (!result.was_complete) {
    if (!download(listing->commit, files, false)) return std::nullopt;
    cache_.prepare();
    if (!cache_.publish(options_.revision, listing->commit, files, stop_)) return std::nullopt;
  }
  for (const RemoteFile& file : files) {
    result.files.push_back({file.name, file.size, downloaded_.count(file.name) > 0});
    result.bytes += file.size;
  }
  return result;
}

void check_options(const PullOptions& options) {
  if (!hub_internal::is_repository_name(options.repository) ||
      options.repository.find("--") != std::string::npos ||
      options.repository.find("..") != std::string::npos) {
    throw Error(fmt::format("'{}': expected a model's name on the hub, such as Qwen/Qwen3-0.6B.",
                            options.repository.substr(0, 200)));
  }
  if (const std::string reason = unsafe_path(options.revision); !reason.empty()) {
    throw Error(
        fmt::format("The revision '{}' is refused: {}.", options.revision.substr(0, 200), reason));
  }
  check(options.parallel > 0, "no file may be downloaded");
}

}  // namespace

std::optional<PullResult> pull(const PullOptions& options, const PullCallbacks& callbacks,
                               const std::stop_token& stop) {
  check_options(options);
  return Pull(options, callbacks, stop).run();
}

}  // namespace quire
