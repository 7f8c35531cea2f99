#include "http/server_context.h"

#include <exception>

namespace quire::http {

Response ServerContext::error_response(int status, const std::string& message) const {
  if (config.error_response) {
    try {
      Response response = config.error_response(status, message);
      response.status = status;
      return response;
    } catch (const std::exception&) {
      // The client still gets its answer, in plain words.
    }
  }
  return {.status = status,
          .headers = {},
          .content_type = "text/plain; charset=utf-8",
          .body = message + "\n"};
}

}  // namespace quire::http
