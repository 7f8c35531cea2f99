// The bytes are what a connection receives: pipelined requests, read whole and again in small
// pieces. Both ways must see the same requests, and none longer than the limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "http/request_parser.h"

namespace {

using quire::http::Request;
using quire::http::RequestParser;

void require(bool sound) {
  if (!sound) std::abort();
}

quire::http::Limits limits() {
  quire::http::Limits limits;
  limits.max_header_bytes = 1024;
  limits.max_body_bytes = 4096;
  return limits;
}

void check_request(const Request& request) {
  require(request.body.size() <= limits().max_body_bytes);
  require(!request.method.empty() && !request.path.empty());
  require(request.path.find('\0') == std::string::npos);
  for (const auto& [name, value] : request.headers) {
    require(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    require(request.header(name).has_value());
  }
}

// All requests up to the end of the bytes or to the first that is refused.
std::vector<Request> read_requests(std::string_view bytes, std::size_t step) {
  std::vector<Request> requests;
  std::string kept;
  while (!bytes.empty() || !kept.empty()) {
    RequestParser parser(limits());
    while (parser.stage() != RequestParser::Stage::kComplete) {
      kept.erase(0, parser.feed(kept));
      if (parser.stage() == RequestParser::Stage::kFailed) {
        require(parser.failure().status >= 400 && !parser.failure().message.empty());
        return requests;
      }
      if (parser.stage() == RequestParser::Stage::kComplete) break;
      require(kept.size() <= limits().max_header_bytes);
      if (bytes.empty()) return requests;
      kept.append(bytes.substr(0, step));
      bytes.remove_prefix(std::min(step, bytes.size()));
    }
    parser.keep_alive();
    requests.push_back(parser.take());
    check_request(requests.back());
  }
  return requests;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<Request> whole = read_requests(bytes, bytes.size());
  const std::vector<Request> pieces = read_requests(bytes, std::size_t{data[0]} % 16 + 1);
  require(whole.size() == pieces.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    require(whole[i].method == pieces[i].method && whole[i].path == pieces[i].path &&
            whole[i].query == pieces[i].query && whole[i].headers == pieces[i].headers &&
            whole[i].body == pieces[i].body);
  }
  return 0;
}
