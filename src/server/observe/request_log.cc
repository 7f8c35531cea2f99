#include "server/observe/request_log.h"

#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "server/observe/access_log_text.h"

namespace quire::server {
namespace {

constexpr size_t kMaxId = 256;
constexpr size_t kMaxKeptField = 512;
constexpr size_t kMaxError = 2048;

void cut(std::string& text, size_t max_bytes) {
  if (text.size() > max_bytes) text = cut_text(text, max_bytes);
}

}  // namespace

void cut_texts(RequestRecord& record) {
  cut(record.request_id, kMaxId);
  cut(record.error, kMaxError);
  for (std::string* field : {&record.method, &record.path, &record.model, &record.client,
                             &record.finish_reason, &record.reject_reason}) {
    cut(*field, kMaxKeptField);
  }
}

class RequestLog::Impl {
 public:
  explicit Impl(RequestLogConfig config) : config_(config) {}

  void add(RequestRecord record) {
    cut_texts(record);
    record.trace.reset();
    std::string key = key_of(record.request_id, record.owner);
    const std::lock_guard lock(mutex_);
    entries_.push_back({std::move(key), std::move(record)});
    bytes_ += bytes_of(entries_.back());
    newest_[entries_.back().key] = first_ + entries_.size() - 1;
    while (entries_.size() > config_.max_requests || bytes_ > config_.max_bytes) forget_oldest();
  }

  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const {
    const std::string key = key_of(cut_text(request_id, kMaxId), owner);
    const std::lock_guard lock(mutex_);
    const auto it = newest_.find(key);
    if (it == newest_.end()) return std::nullopt;
    return entries_[it->second - first_].record;
  }

 private:
  struct Entry {
    std::string key{};
    RequestRecord record{};
  };

  // Unambiguous: a hash of a key in hexadecimal holds no line feed.
  static std::string key_of(std::string_view request_id, std::string_view owner) {
    std::string key(owner);
    key += '\n';
    key += request_id;
    return key;
  }

  // What it takes, with its place in `newest_`.
  static size_t bytes_of(const Entry& entry) {
    size_t bytes = sizeof(Entry) + 2 * entry.key.size() + kBytesOfIndexEntry;
    const RequestRecord& record = entry.record;
    for (const std::string* text :
         {&record.request_id, &record.method, &record.path, &record.model, &record.client,
          &record.owner, &record.finish_reason, &record.reject_reason, &record.error}) {
      bytes += text->size();
    }
    return bytes;
  }

  void forget_oldest() {
    const Entry& oldest = entries_.front();
    bytes_ -= bytes_of(oldest);
    // Its id belongs to a newer entry where it came twice.
    const auto it = newest_.find(oldest.key);
    if (it != newest_.end() && it->second == first_) newest_.erase(it);
    entries_.pop_front();
    ++first_;
  }

  // A node of the hash table and its bucket.
  static constexpr size_t kBytesOfIndexEntry = sizeof(std::string) + 6 * sizeof(void*);

  const RequestLogConfig config_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // the oldest first
  size_t first_ = 0;           // the number of the oldest: entries are numbered as they come
  size_t bytes_ = 0;
  std::unordered_map<std::string, size_t> newest_;  // the number of an id's newest entry
};

RequestLog::RequestLog(RequestLogConfig config) : impl_(std::make_unique<Impl>(config)) {}
RequestLog::~RequestLog() = default;

void RequestLog::add(RequestRecord record) {
  impl_->add(std::move(record));
}
std::optional<RequestRecord> RequestLog::find(std::string_view request_id,
                                              std::string_view owner) const {
  return impl_->find(request_id, owner);
}

}  // namespace quire::server
