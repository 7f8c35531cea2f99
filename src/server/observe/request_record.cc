#include "server/observe/request_record.h"

namespace quire::server {

void mark_undelivered(RequestRecord& record) {
  record.client_disconnected = true;
  if (!record.finish_reason.empty()) record.finish_reason = "abort";
  if (record.error.empty()) {
    record.error = "The client left before it had the whole answer.";
  }
}

}  // namespace quire::server
