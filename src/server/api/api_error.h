#pragma once
// The error of an API call: an HTTP status and OpenAI's error object.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "quire/error.h"

namespace quire::server {

struct ApiError : Error {
  ApiError(int status, std::string type, const std::string& message,
           std::optional<std::string> param = {}, std::optional<std::string> code = {});

  int status;                        // of HTTP, 400 to 599
  std::string type;                  // "invalid_request_error", "rate_limit_error", ...
  std::optional<std::string> param;  // the path of the parameter at fault: "messages[0].content"
  std::optional<std::string> code;   // "model_not_found", "invalid_value", ...
  std::optional<int64_t> retry_after_s;  // for the Retry-After header of 429 and 503
  std::optional<std::string> allow;      // for the Allow header of 405
};

// 400, invalid_request_error.
ApiError invalid_request(const std::string& message, std::optional<std::string> param = {},
                         std::optional<std::string> code = {});
// 401, authentication_error, code invalid_api_key.
ApiError authentication_error(const std::string& message);
// 404, invalid_request_error, param model, code model_not_found.
ApiError model_not_found(std::string_view model);
// 404 with code not_found, and 405 with code method_not_allowed, both invalid_request_error.
ApiError not_found(const std::string& message);
ApiError method_not_allowed(const std::string& message, std::string allow);
// 413, invalid_request_error, code request_too_large.
ApiError request_too_large(const std::string& message);
// 429, rate_limit_error, code rate_limit_exceeded.
ApiError rate_limited(const std::string& message, int64_t retry_after_s);
// 503, service_unavailable_error.
ApiError service_unavailable(const std::string& message, std::optional<int64_t> retry_after_s = {});
// 500, server_error.
ApiError server_error(const std::string& message);

// The error to answer a request whose work failed with `failure`, not null: `failure` where it is
// an ApiError, 503 where memory ran out, else 500.
ApiError api_error_of(const std::exception_ptr& failure);

// {"error":{"message":...,"type":...,"param":...,"code":...}}; invalid UTF-8 in the message becomes
// U+FFFD.
std::string error_body(const ApiError& error);

}  // namespace quire::server
