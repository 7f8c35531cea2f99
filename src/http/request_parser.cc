#include "http/request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional.hpp>

#include "base/check.h"
#include "base/hex_digit.h"
#include "http/chunk_decoder.h"

namespace quire::http {
namespace {

namespace beast = boost::beast;
using ErrorCode = beast::error_code;

// The first byte of a TLS record that begins a handshake.
constexpr char kTlsHandshake = 0x16;

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

bool same_token(std::string_view a, std::string_view b) {
  return beast::iequals(beast::string_view(a.data(), a.size()),
                        beast::string_view(b.data(), b.size()));
}

struct Target {
  std::string_view path_and_query;
  std::string_view authority{};
};

// A request target is "/path?query", "http://host/path?query" or "*".
std::optional<Target> read_target_form(std::string_view target) {
  if (target == "*" || target.starts_with('/')) return Target{target};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !same_token(target.substr(0, scheme.size()), scheme)) {
      continue;
    }
    const std::size_t path = std::min(target.find_first_of("/?", scheme.size()), target.size());
    return Target{path == target.size() ? std::string_view("/") : target.substr(path),
                  target.substr(scheme.size(), path - scheme.size())};
  }
  return std::nullopt;
}

ParseFailure too_long_head(const Limits& limits) {
  return {431, "The request line and headers are longer than " +
                   std::to_string(limits.max_header_bytes) + " bytes."};
}

ParseFailure too_long_body(const Limits& limits) {
  return {413,
          "The request body is longer than " + std::to_string(limits.max_body_bytes) + " bytes."};
}

ParseFailure describe(const ErrorCode& error, const Limits& limits) {
  namespace http = beast::http;
  if (error == http::error::header_limit) return too_long_head(limits);
  if (error == http::error::bad_content_length || error == http::error::bad_transfer_encoding) {
    return {400,
            "The body's length must be given once, by Content-Length or by Transfer-Encoding."};
  }
  return {400, "The bytes are no HTTP/1.1 request: " + error.message() + "."};
}

}  // namespace

bool percent_decode(std::string_view encoded, std::string& decoded) {
  decoded.clear();
  decoded.reserve(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      decoded.push_back(encoded[i]);
      continue;
    }
    if (encoded.size() - i < 3) return false;
    const int high = hex_digit(encoded[i + 1]);
    const int low = hex_digit(encoded[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    decoded.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

// Beast reads the head's syntax and calls back; what is stricter than Beast is decided in the
// callbacks. The body is read here.
class RequestParser::Impl : public beast::http::basic_parser<true> {
 public:
  explicit Impl(const Limits& limits) : limits_(limits), chunks_(limits.max_body_bytes) {
    // The head is counted in read_head(), request line and headers together.
    header_limit(static_cast<std::uint32_t>(
        std::min<std::size_t>(limits.max_header_bytes, std::uint32_t{1} << 31)));
    skip(true);  // the body
  }

  std::size_t feed(std::string_view bytes);

  Stage stage_ = Stage::kNothing;
  ParseFailure failure_;
  Request request_;
  int version_ = 11;
  bool expects_continue_ = false;
  bool head_is_complete_ = false;

 private:
  void skip_blank_lines(std::string_view& bytes);
  void read_head(std::string_view& bytes);
  void begin_body();
  void read_body(std::string_view& bytes);
  void fail(ParseFailure failure) {
    failure_ = std::move(failure);
    stage_ = Stage::kFailed;
  }
  // Keeps the more exact sentence, and makes Beast stop.
  void refuse(ParseFailure failure, ErrorCode& error) {
    fail(std::move(failure));
    error = beast::http::error::bad_value;
  }
  void read_target(std::string_view target, ErrorCode& error);
  void read_framing_header(beast::http::field name, std::string_view value, ErrorCode& error);

  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, ErrorCode& error) override;
  void on_field_impl(beast::http::field name, beast::string_view name_string,
                     beast::string_view value, ErrorCode& error) override;
  void on_header_impl(ErrorCode& error) override;
  // Of a response, or of a body that Beast reads.
  void on_response_impl(int, beast::string_view, int, ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(beast::string_view, ErrorCode&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view, ErrorCode&) override {
    return 0;
  }
  void on_finish_impl(ErrorCode&) override {}

  const Limits limits_;
  std::size_t head_bytes_ = 0;
  int num_hosts_ = 0;
  int num_lengths_ = 0;
  std::uint64_t remaining_ = 0;  // of a body with Content-Length
  ChunkDecoder chunks_;
};

std::size_t RequestParser::Impl::feed(std::string_view bytes) {
  const std::size_t given = bytes.size();
  if (stage_ == Stage::kNothing) skip_blank_lines(bytes);
  if (stage_ == Stage::kHead) read_head(bytes);
  if (stage_ == Stage::kBody) read_body(bytes);
  return given - bytes.size();
}

// Some clients end a body with an empty line that belongs to no request (RFC 9112, 2.2).
void RequestParser::Impl::skip_blank_lines(std::string_view& bytes) {
  while (bytes.starts_with("\r\n")) {
    bytes.remove_prefix(2);
    head_bytes_ += 2;
  }
  if (head_bytes_ > limits_.max_header_bytes) return fail(too_long_head(limits_));
  if (bytes.empty() || bytes == "\r") return;  // perhaps half of one more
  if (bytes.front() == kTlsHandshake) {
    return fail({400, "This port speaks plain HTTP and was sent a TLS handshake: use http://."});
  }
  stage_ = Stage::kHead;
}

void RequestParser::Impl::read_head(std::string_view& bytes) {
  ErrorCode error;
  while (!bytes.empty() && !error && !is_header_done()) {
    const std::size_t n = put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    bytes.remove_prefix(n);
    head_bytes_ += n;
  }
  if (stage_ == Stage::kFailed) return;  // said by a callback
  if (error && error != beast::http::error::need_more) return fail(describe(error, limits_));
  // Until the head is whole, the caller keeps what is left.
  const std::size_t head_bytes = head_bytes_ + (is_header_done() ? 0 : bytes.size());
  if (head_bytes > limits_.max_header_bytes) return fail(too_long_head(limits_));
  if (is_header_done()) begin_body();
}

void RequestParser::Impl::begin_body() {
  head_is_complete_ = true;
  stage_ = Stage::kBody;
  if (chunked()) return;
  remaining_ = content_length().value_or(0);
  if (remaining_ > limits_.max_body_bytes) return fail(too_long_body(limits_));
  if (remaining_ == 0) stage_ = Stage::kComplete;
}

void RequestParser::Impl::read_body(std::string_view& bytes) {
  if (!chunked()) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, bytes.size()));
    request_.body.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    remaining_ -= n;
    if (remaining_ == 0) stage_ = Stage::kComplete;
    return;
  }
  switch (chunks_.feed(bytes, request_.body)) {
    case ChunkDecoder::Result::kMore:
      return;
    case ChunkDecoder::Result::kDone:
      stage_ = Stage::kComplete;
      return;
    case ChunkDecoder::Result::kTooLong:
      return fail(too_long_body(limits_));
    case ChunkDecoder::Result::kMalformed:
      return fail({400,
                   "The chunked body is malformed: each chunk needs its size in hexadecimal "
                   "digits, a line end, as many bytes, and a line end."});
  }
}

void RequestParser::Impl::on_request_impl(beast::http::verb, beast::string_view method,
                                          beast::string_view target, int version,
                                          ErrorCode& error) {
  request_.method = view(method);
  version_ = version;
  read_target(view(target), error);
}

void RequestParser::Impl::read_target(std::string_view target, ErrorCode& error) {
  if (request_.method == "CONNECT") {  // host:port; there is no path
    request_.path = target;
    return;
  }
  const auto form = read_target_form(target);
  if (!form) {
    return refuse({400, "The request target must be a path that starts with '/'."}, error);
  }
  // A user's name before the host could pass for one.
  const bool is_absolute = form->path_and_query.data() != target.data();
  if (is_absolute && (form->authority.empty() || form->authority.find('@') != std::string::npos)) {
    return refuse({400, "The request target must have a host and no user behind \"http://\"."},
                  error);
  }
  request_.authority = form->authority;
  const std::string_view rest = form->path_and_query;
  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) request_.query = rest.substr(question + 1);
  if (!percent_decode(rest.substr(0, question), request_.path)) {
    return refuse(
        {400, "The path has a '%' that two hexadecimal digits other than 00 do not follow."},
        error);
  }
  if (request_.path.empty()) request_.path = "/";
}

void RequestParser::Impl::on_field_impl(beast::http::field name, beast::string_view name_string,
                                        beast::string_view value, ErrorCode& error) {
  read_framing_header(name, view(value), error);
  if (!error) request_.headers.emplace_back(view(name_string), view(value));
}

// Checks the headers that decide where the body ends, and for whom the request is.
void RequestParser::Impl::read_framing_header(beast::http::field name, std::string_view value,
                                              ErrorCode& error) {
  using beast::http::field;
  if (name == field::host && ++num_hosts_ > 1) {
    return refuse({400, "The request has two Host headers."}, error);
  }
  if (name == field::content_length) {
    const bool digits = !value.empty() && std::all_of(value.begin(), value.end(),
                                                      [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || ++num_lengths_ > 1) {
      return refuse({400, "Content-Length must be one number, given once."}, error);
    }
  }
  if (name == field::transfer_encoding) {
    if (!same_token(value, "chunked") || version_ < 11) {
      return refuse({400, "The only Transfer-Encoding taken is \"chunked\", of HTTP/1.1."}, error);
    }
  }
  if (name == field::expect && version_ >= 11) {
    if (!same_token(value, "100-continue")) {
      return refuse({417, "The only expectation that can be met is \"100-continue\"."}, error);
    }
    expects_continue_ = true;
  }
}

void RequestParser::Impl::on_header_impl(ErrorCode& error) {
  if (version_ >= 11 && num_hosts_ == 0) {
    return refuse({400, "An HTTP/1.1 request needs a Host header."}, error);
  }
}

RequestParser::RequestParser(const Limits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

std::size_t RequestParser::feed(std::string_view bytes) {
  return impl_->feed(bytes);
}
RequestParser::Stage RequestParser::stage() const {
  return impl_->stage_;
}
const ParseFailure& RequestParser::failure() const {
  return impl_->failure_;
}
bool RequestParser::expects_continue() const {
  return impl_->expects_continue_;
}
bool RequestParser::keep_alive() const {
  return impl_->keep_alive();
}
bool RequestParser::http_1_0() const {
  return impl_->version_ < 11;
}
bool RequestParser::head_is_complete() const {
  return impl_->head_is_complete_;
}
const Request& RequestParser::request() const {
  return impl_->request_;
}

Request RequestParser::take() {
  check(impl_->stage_ == Stage::kComplete, "a request is taken before it is complete");
  return std::move(impl_->request_);
}

Request RequestParser::take_head() {
  check(impl_->head_is_complete_, "a head is taken that is not complete");
  impl_->request_.body.clear();
  return std::move(impl_->request_);
}

}  // namespace quire::http
