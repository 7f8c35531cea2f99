#include "server/api/api_error.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/json_writer.h"

namespace quire::server {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

}  // namespace

ApiError::ApiError(int status, std::string type, const std::string& message,
                   std::optional<std::string> param, std::optional<std::string> code)
    : Error(message),
      status(status),
      type(std::move(type)),
      param(std::move(param)),
      code(std::move(code)) {}

ApiError invalid_request(const std::string& message, std::optional<std::string> param,
                         std::optional<std::string> code) {
  return ApiError(400, kInvalidRequest, message, std::move(param), std::move(code));
}

ApiError authentication_error(const std::string& message) {
  return ApiError(401, "authentication_error", message, {}, "invalid_api_key");
}

ApiError model_not_found(std::string_view model) {
  return ApiError(404, kInvalidRequest, fmt::format("The model '{}' does not exist.", model),
                  "model", "model_not_found");
}

ApiError not_found(const std::string& message) {
  return ApiError(404, kInvalidRequest, message, {}, "not_found");
}

ApiError method_not_allowed(const std::string& message, std::string allow) {
  ApiError error(405, kInvalidRequest, message, {}, "method_not_allowed");
  error.allow = std::move(allow);
  return error;
}

ApiError request_too_large(const std::string& message) {
  return ApiError(413, kInvalidRequest, message, {}, "request_too_large");
}

ApiError rate_limited(const std::string& message, int64_t retry_after_s) {
  ApiError error(429, "rate_limit_error", message, {}, "rate_limit_exceeded");
  error.retry_after_s = retry_after_s;
  return error;
}

ApiError service_unavailable(const std::string& message, std::optional<int64_t> retry_after_s) {
  ApiError error(503, "service_unavailable_error", message, {}, "service_unavailable");
  error.retry_after_s = retry_after_s;
  return error;
}

ApiError server_error(const std::string& message) {
  return ApiError(500, "server_error", message, {}, "internal_error");
}

ApiError api_error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ApiError& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return service_unavailable(
        "The server has not enough memory left for this request; try again later.", 1);
  } catch (const std::exception& error) {
    return server_error(error.what());
  }
}

std::string error_body(const ApiError& error) {
  std::string body;
  JsonWriter json(body);
  const auto or_null = [&json](const char* name, const std::optional<std::string>& text) {
    if (text) {
      json.member(name, *text);
    } else {
      json.null_member(name);
    }
  };
  json.begin_object().key("error").begin_object();
  json.member("message", error.what()).member("type", error.type);
  or_null("param", error.param);
  or_null("code", error.code);
  json.end_object().end_object();
  return body;
}

}  // namespace quire::server
