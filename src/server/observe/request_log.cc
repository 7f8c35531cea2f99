#include "server/observe/request_log.h"

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/observe/access_log_text.h"

namespace quire::server {
namespace {

constexpr size_t kMaxId = 256;
constexpr size_t kMaxKeptField = 512;
constexpr size_t kMaxError = 2048;

void cut(std::string& text, size_t max_bytes) {
  if (text.size() > max_bytes) text = cut_text(text, max_bytes);
}

void cut_fields(RequestRecord& record) {
  cut(record.request_id, kMaxId);
  cut(record.error, kMaxError);
  for (std::string* field : {&record.method, &record.path, &record.model, &record.client,
                             &record.finish_reason, &record.reject_reason}) {
    cut(*field, kMaxKeptField);
  }
}

}  // namespace

class RequestLog::Impl {
 public:
  explicit Impl(size_t capacity) : capacity_(capacity) {
    check(capacity >= 1, "a request log holds at least one request");
  }

  void add(RequestRecord record) {
    cut_fields(record);
    std::string key = key_of(record.request_id, record.owner);
    const std::lock_guard lock(mutex_);
    if (entries_.size() < capacity_) {
      entries_.push_back({});
    } else {
      forget(next_);
    }
    positions_[key] = next_;
    entries_[next_] = {std::move(key), std::move(record)};
    next_ = (next_ + 1) % capacity_;
  }

  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const {
    const std::string key = key_of(cut_text(request_id, kMaxId), owner);
    const std::lock_guard lock(mutex_);
    const auto it = positions_.find(key);
    if (it == positions_.end()) return std::nullopt;
    return entries_[it->second].record;
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

  // The position belongs to a newer entry where an id came twice.
  void forget(size_t position) {
    const auto it = positions_.find(entries_[position].key);
    if (it != positions_.end() && it->second == position) positions_.erase(it);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // a ring once it is full
  size_t next_ = 0;
  std::unordered_map<std::string, size_t> positions_;
};

RequestLog::RequestLog(std::size_t capacity) : impl_(std::make_unique<Impl>(capacity)) {}
RequestLog::~RequestLog() = default;

void RequestLog::add(RequestRecord record) {
  impl_->add(std::move(record));
}
std::optional<RequestRecord> RequestLog::find(std::string_view request_id,
                                              std::string_view owner) const {
  return impl_->find(request_id, owner);
}

}  // namespace quire::server
