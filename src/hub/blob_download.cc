#include "hub/blob_download.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "hub/partial_blob.h"
#include "quire/error.h"

namespace quire {
namespace {

// "bytes 100-199/200": where the part begins, and the size of the whole if it is said.
struct ContentRange {
  int64_t begin = 0;
  std::optional<int64_t> total;
};

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const size_t slash = text.find('/');
  ContentRange range;
  if (slash == std::string_view::npos ||
      std::from_chars(text.data(), text.data() + slash, range.begin).ec != std::errc()) {
    return std::nullopt;
  }
  const std::string_view total = text.substr(slash + 1);
  if (total != "*") {
    int64_t value = 0;
    if (std::from_chars(total.data(), total.data() + total.size(), value).ec != std::errc()) {
      return std::nullopt;
    }
    range.total = value;
  }
  return range;
}

// Puts an answer's body into the file. What cannot be that file's content is a complaint.
class BlobSink : public HttpSink {
 public:
  BlobSink(PartialBlob& blob, const RemoteFile& file, const BlobCallbacks& callbacks)
      : blob_(blob), file_(file), callbacks_(callbacks) {}

  bool start(const HttpHead& head) override {
    if (head.status == 206) return start_part(head);
    if (head.status != 200) return complain(fmt::format("HTTP {} is no file", head.status));
    // The hub or a proxy between knows no ranges: it comes from the beginning.
    if (blob_.size() > 0) blob_.restart();
    if (head.content_length && *head.content_length != file_.size) {
      return complain_of_size(*head.content_length);
    }
    return true;
  }

  bool write(std::string_view bytes) override {
    if (static_cast<int64_t>(bytes.size()) > file_.size - blob_.size()) {
      return complain(
          fmt::format("it sends more than the {} bytes that the hub's list says", file_.size));
    }
    blob_.append(bytes);
    callbacks_.on_position(blob_.size());
    return true;
  }

  const std::string& complaint() const { return complaint_; }

 private:
  bool start_part(const HttpHead& head) {
    const auto range = parse_content_range(head.content_range);
    if (!range || range->begin != blob_.size()) {
      return complain(fmt::format("it sends another part than bytes {} on", blob_.size()));
    }
    return !range->total || *range->total == file_.size || complain_of_size(*range->total);
  }

  bool complain_of_size(int64_t size) {
    return complain(fmt::format("it has {} bytes where the hub's list says {}", size, file_.size));
  }
  bool complain(std::string what) {
    complaint_ = std::move(what);
    return false;
  }

  PartialBlob& blob_;
  const RemoteFile& file_;
  const BlobCallbacks& callbacks_;
  std::string complaint_;
};

class BlobDownload {
 public:
  BlobDownload(HubClient& client, const std::string& url, const HubTarget& target,
               const RemoteFile& file, const HubCache& cache, const std::stop_token& stop,
               const BlobCallbacks& callbacks)
      : client_(client),
        url_(url),
        target_(target),
        file_(file),
        stop_(stop),
        callbacks_(callbacks),
        blob_(cache, file),
        attempts_(target, /*first_contact=*/false, stop, callbacks.on_note) {}

  BlobOutcome run() {
    if (!blob_.resume(stop_)) return BlobOutcome::kStopped;
    best_ = blob_.size();
    callbacks_.on_position(blob_.size());
    while (true) {
      while (blob_.size() < file_.size) {
        if (!fetch()) return BlobOutcome::kStopped;
      }
      const auto wrong = blob_.finish();
      if (!wrong) return BlobOutcome::kDownloaded;
      take_complaint(fmt::format("its {} is {} where the hub's list says {}", file_.id.algorithm(),
                                 *wrong, file_.id.hex));
    }
  }

 private:
  // One connection. False if stopped.
  bool fetch() {
    BlobSink sink(blob_, file_, callbacks_);
    const HttpResult result = client_.get(url_, blob_.size(), sink, stop_);
    if (blob_.size() > best_) {
      best_ = blob_.size();
      attempts_.progressed();
    }
    if (result.end == HttpResult::End::kStopped) return false;
    if (blob_.size() == file_.size && sink.complaint().empty()) return true;
    if (result.end == HttpResult::End::kRefused) {
      take_complaint(sink.complaint());
      return true;
    }
    if (result.head.status == 416) blob_.restart();
    return attempts_.failed(result);
  }

  // The content is not what it should be: once may be an accident.
  void take_complaint(const std::string& complaint) {
    blob_.restart();
    callbacks_.on_position(0);
    best_ = 0;
    if (complained_) {
      blob_.discard();
      throw Error(fmt::format("{}: {}, twice; what came was deleted.", target_.shown(), complaint));
    }
    complained_ = true;
    callbacks_.on_note(fmt::format("{}: {}; downloading it anew", target_.shown(), complaint));
  }

  HubClient& client_;
  const std::string& url_;
  const HubTarget& target_;
  const RemoteFile& file_;
  const std::stop_token& stop_;
  const BlobCallbacks& callbacks_;
  PartialBlob blob_;
  Attempts attempts_;
  int64_t best_ = 0;  // the most bytes there were
  bool complained_ = false;
};

}  // namespace

BlobOutcome download_blob(HubClient& client, const std::string& url, const HubTarget& target,
                          const RemoteFile& file, const HubCache& cache,
                          const std::stop_token& stop, const BlobCallbacks& callbacks) {
  const auto lock = FileLock::acquire(cache.lock_file(file.id.hex), stop, [&] {
    callbacks.on_note(target.shown() + ": another process is downloading it; waiting");
  });
  if (!lock) return BlobOutcome::kStopped;
  if (cache.has_blob(file)) {
    callbacks.on_position(file.size);
    return BlobOutcome::kWasThere;
  }
  return BlobDownload(client, url, target, file, cache, stop, callbacks).run();
}

}  // namespace quire
