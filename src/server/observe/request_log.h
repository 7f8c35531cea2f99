#pragma once
// The last requests that finished, for /v1/requests/{request_id}.
//
// Memory is bounded: a number of records and a number of bytes; long strings in records are cut
// (and marked with "…"). A record is found only by the owner that it was added with.
//
// Thread safety: every method from any thread.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/observe/request_record.h"

namespace quire::server {

struct RequestLogConfig {
  std::size_t max_requests = 1024;  // 0: none is kept
  std::size_t max_bytes = 16 << 20;
};

class RequestLog {
 public:
  explicit RequestLog(RequestLogConfig config = {});
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // Drops the oldest records where there are too many. An owner's second record with the same id
  // hides the first.
  void add(RequestRecord record);

  // Nothing where there is none, or it is not this owner's.
  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Cuts the long strings of a record, as add() does.
void cut_texts(RequestRecord& record);

// The answer of /v1/requests/{request_id}, JSON: the record, and in words where its time went. Its
// members are those of RequestFacts in /openapi.json.
std::string explain_request_json(const RequestRecord& record);

}  // namespace quire::server
