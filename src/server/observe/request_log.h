#pragma once
// The last requests, for /v1/requests/{request_id}.
//
// Memory is bounded: a fixed number of records, and each of their strings is cut (and marked with
// "…") where it is long. A record is found only by the owner that it was added with.
//
// Thread safety: every method from any thread.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/observe/request_record.h"

namespace quire::server {

class RequestLog {
 public:
  explicit RequestLog(std::size_t capacity = 1024);  // >= 1
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // The oldest goes when there are `capacity`. An owner's second record of the same id hides its
  // first.
  void add(RequestRecord record);

  // Nothing where there is none, or it is not this owner's.
  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The answer of /v1/requests/{request_id}, JSON: the record, and where its time went, in words.
std::string explain_request_json(const RequestRecord& record);

}  // namespace quire::server
