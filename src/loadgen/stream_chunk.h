#pragma once
// One event of a streamed completion, from either endpoint of OpenAI's API or from servers that
// resemble it.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::loadgen {

struct StreamChunk {
  // It carries output: text, content, reasoning, tool calls or token ids that are not empty.
  bool has_output = false;
  bool has_choice = false;
  std::string text;  // reasoning and content of the first choice, if it was asked for
  std::optional<std::string> error;  // the server gave up on the request
  // Of "usage"; absent where the chunk has none.
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> completion_tokens;
  std::optional<int64_t> cached_tokens;

  void clear();
};

// Reads the JSON of an event into `chunk`, which is cleared first; `with_text`: whether to keep its
// text. False for anything but one JSON object, or fields of unexpected types.
bool parse_stream_chunk(std::string_view json, bool with_text, StreamChunk& chunk);

// The message of an error response, in one short line: that of OpenAI's error object, "message" or
// "detail", else the start of the body. Never longer than kMaxErrorMessageBytes.
inline constexpr size_t kMaxErrorMessageBytes = 300;
std::string error_message_of(std::string_view body);

}  // namespace quire::loadgen
