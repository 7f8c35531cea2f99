#pragma once
// The last requests that finished, for /v1/requests/{request_id}.
//
// Memory is bounded: so many records, and so many bytes; each of their strings is cut (and marked
// with "…") where it is long. A record is found only by the owner that it was added with.
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

  // The oldest go where there are too many. An owner's second record of the same id hides its
  // first.
  void add(RequestRecord record);

  // Nothing where there is none, or it is not this owner's.
  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Cuts the strings of a record that are long, as it is kept.
void cut_texts(RequestRecord& record);

// The answer of /v1/requests/{request_id}, JSON: the record, and where its time went, in words. Its
// members are those of RequestFacts in /openapi.json.
std::string explain_request_json(const RequestRecord& record);

}  // namespace quire::server
