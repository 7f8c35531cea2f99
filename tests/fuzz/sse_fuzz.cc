// A streamed answer, as `quire bench serve` reads it. However the bytes are cut into pieces, the
// same must come of them; and JSON is taken where another parser takes it, but for what is left
// unchecked here: bytes that are no UTF-8, halves of surrogate pairs, numbers that no double holds,
// NUL (which ends the other's text).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "loadgen/json_cursor.h"
#include "loadgen/response_reader.h"
#include "loadgen/sse_reader.h"

namespace {

using quire::loadgen::JsonCursor;
using quire::loadgen::RequestResult;
using quire::loadgen::ResponseReader;
using quire::loadgen::SseReader;

class Events : public SseReader::Sink {
 public:
  bool on_event(std::string_view data) override {
    events.emplace_back(data);
    return true;
  }
  std::vector<std::string> events;
};

RequestResult read(std::string_view bytes, size_t piece) {
  ResponseReader reader(0, /*keep_text=*/true);
  reader.on_headers(200, "text/event-stream");
  while (!bytes.empty() && reader.on_body(bytes.substr(0, piece), 1)) {
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return reader.finish(200, "", 2);
}

std::vector<std::string> events_of(std::string_view bytes, size_t piece) {
  Events sink;
  SseReader reader(sink);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    reader.feed(bytes.substr(0, piece));
  }
  reader.finish();
  return sink.events;
}

bool is_json(std::string_view text) {
  JsonCursor cursor(text);
  return cursor.skip_value() && cursor.at_end();
}

// Nothing in it that the two parsers may see differently.
bool is_plain(std::string_view text) {
  char last = '\0';
  for (const char c : text) {
    const bool exponent = (c == 'e' || c == 'E') && last >= '0' && last <= '9';
    if (c == '\0' || exponent || (last == '\\' && c == 'u') ||
        static_cast<unsigned char>(c) >= 0x80)
      return false;
    last = c;
  }
  return true;
}

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t whole = size + 1;
  const RequestResult result = read(bytes, whole);
  const std::vector<std::string> events = events_of(bytes, whole);
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    const RequestResult again = read(bytes, piece);
    require(again.outcome == result.outcome && again.error == result.error);
    require(again.text == result.text && again.output_tokens == result.output_tokens);
    require(again.num_output_events == result.num_output_events);
    require(events_of(bytes, piece) == events);
  }
  for (const std::string& event : events) {
    const bool taken = is_json(event);
    const bool expected = nlohmann::json::accept(event);
    if (expected && is_plain(event)) require(taken || event.size() > JsonCursor::kMaxDepth);
    if (taken && is_plain(event)) require(expected);
  }
  return 0;
}
