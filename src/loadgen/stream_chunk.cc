#include "loadgen/stream_chunk.h"

#include "loadgen/json_cursor.h"

namespace quire::loadgen {
namespace {

// No farther than where a character of UTF-8 ends.
std::string shortened(std::string text) {
  if (text.size() <= kMaxErrorMessageBytes) return text;
  constexpr std::string_view kEllipsis = "...";
  size_t end = kMaxErrorMessageBytes - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
  text.resize(end);
  return text.append(kEllipsis);
}

class ChunkParser {
 public:
  ChunkParser(std::string_view json, bool with_text, StreamChunk& chunk)
      : cursor_(json), with_text_(with_text), chunk_(chunk) {}

  bool parse() {
    const bool well_formed = cursor_.read_object([this](std::string_view key) {
      if (key == "choices" && cursor_.peek() == '[') return read_choices();
      if (key == "usage" && cursor_.peek() == '{') return read_usage();
      if (key == "error" && cursor_.peek() != 'n') return read_error();
      return cursor_.skip_value();
    });
    return well_formed && cursor_.at_end();
  }

 private:
  bool read_choices() {
    int index = 0;
    return cursor_.read_array([&] { return read_choice(index++ == 0); });
  }

  bool read_choice(bool first) {
    chunk_.has_choice = true;
    return cursor_.read_object([&](std::string_view key) {
      if (key == "text") return read_output_text(first);
      if (key == "delta" && cursor_.peek() == '{') return read_delta(first);
      if (key == "token_ids") return read_list();
      return cursor_.skip_value();
    });
  }

  bool read_delta(bool first) {
    return cursor_.read_object([&](std::string_view key) {
      if (key == "content" || key == "reasoning_content" || key == "reasoning") {
        return read_output_text(first);
      }
      if (key == "tool_calls") return read_list();
      return cursor_.skip_value();
    });
  }

  bool read_output_text(bool first) {
    if (cursor_.peek() == 'n') return cursor_.skip_value();
    std::string_view raw;
    if (!cursor_.read_raw_string(raw)) return false;
    chunk_.has_output = chunk_.has_output || !raw.empty();
    if (with_text_ && first) append_unescaped(raw, chunk_.text);
    return true;
  }

  // A list that is output unless it is empty.
  bool read_list() {
    if (cursor_.peek() != '[') return cursor_.skip_value();
    return cursor_.read_array([this] {
      chunk_.has_output = true;
      return cursor_.skip_value();
    });
  }

  bool read_usage() {
    return cursor_.read_object([this](std::string_view key) {
      if (key == "prompt_tokens") return read_count(chunk_.prompt_tokens);
      if (key == "completion_tokens") return read_count(chunk_.completion_tokens);
      if (key == "prompt_tokens_details" && cursor_.peek() == '{') {
        return cursor_.read_object([this](std::string_view detail) {
          return detail == "cached_tokens" ? read_count(chunk_.cached_tokens)
                                           : cursor_.skip_value();
        });
      }
      return cursor_.skip_value();
    });
  }

  bool read_count(std::optional<int64_t>& count) {
    if (cursor_.peek() == 'n') return cursor_.skip_value();
    int64_t value = 0;
    if (!cursor_.read_integer(value) || value < 0) return false;
    count = value;
    return true;
  }

  // OpenAI's {"message": ...}, or whatever stands there.
  bool read_error() {
    std::string message;
    std::string_view raw;
    bool well_formed = false;
    if (cursor_.peek() == '{') {
      well_formed = cursor_.read_object([&](std::string_view key) {
        if (key != "message" || cursor_.peek() != '"') return cursor_.skip_value();
        if (!cursor_.read_raw_string(raw)) return false;
        append_unescaped(raw, message);
        return true;
      });
    } else if (cursor_.peek() == '"') {
      well_formed = cursor_.read_raw_string(raw);
      append_unescaped(raw, message);
    } else {
      well_formed = cursor_.skip_value();
    }
    chunk_.error = shortened(message.empty() ? "an error without a message" : std::move(message));
    return well_formed;
  }

  JsonCursor cursor_;
  bool with_text_;
  StreamChunk& chunk_;
};

}  // namespace

void StreamChunk::clear() {
  has_output = false;
  has_choice = false;
  text.clear();
  error.reset();
  prompt_tokens.reset();
  completion_tokens.reset();
  cached_tokens.reset();
}

bool parse_stream_chunk(std::string_view json, bool with_text, StreamChunk& chunk) {
  chunk.clear();
  return ChunkParser(json, with_text, chunk).parse();
}

std::string error_message_of(std::string_view body) {
  StreamChunk chunk;
  if (parse_stream_chunk(body, false, chunk) && chunk.error) return *chunk.error;
  std::string message;
  JsonCursor cursor(body);
  const bool is_object = cursor.read_object([&](std::string_view key) {
    if ((key != "message" && key != "detail") || cursor.peek() != '"') return cursor.skip_value();
    std::string_view raw;
    if (!cursor.read_raw_string(raw)) return false;
    message.clear();
    append_unescaped(raw, message);
    return true;
  });
  if (is_object && !message.empty()) return shortened(std::move(message));
  const size_t end = body.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "an empty body";
  return shortened(std::string(body.substr(0, end + 1)));
}

}  // namespace quire::loadgen
