#pragma once
// A string of a template that knows which of its bytes came from the chat's messages or tools.
//
// Marks follow bytes through concatenation, slices and searches. A result that shares no bytes with
// its source (upper case, JSON) is marked whole if any part of the source was.
//
// Thread safety: a plain value.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/text_span.h"

namespace quire::chat_internal {

class MarkedText {
 public:
  MarkedText() = default;
  // The template's own text, or with `marked` a message's.
  explicit MarkedText(std::string text, bool marked = false) : text_(std::move(text)) {
    if (marked) mark(0, text_.size());
  }

  const std::string& text() const { return text_; }
  std::string take_text() && { return std::move(text_); }
  std::size_t size() const { return text_.size(); }
  // In order, not empty and apart from each other.
  const std::vector<TextSpan>& marks() const { return marks_; }
  bool is_marked() const { return !marks_.empty(); }
  // The memory that it takes.
  std::size_t num_bytes() const { return text_.size() + marks_.size() * sizeof(TextSpan); }

  void append(std::string_view text) { text_ += text; }
  void append(const MarkedText& text) { append(text, 0, text.size()); }
  // The bytes [begin, begin + size) of `source`.
  void append(const MarkedText& source, std::size_t begin, std::size_t size);
  // `part` lies within source.text().
  void append_part(const MarkedText& source, std::string_view part) {
    append(source, static_cast<std::size_t>(part.data() - source.text_.data()), part.size());
  }
  MarkedText part(std::size_t begin, std::size_t size) const {
    MarkedText out;
    out.append(*this, begin, size);
    return out;
  }

 private:
  // Behind all other marks.
  void mark(std::size_t begin, std::size_t end);

  std::string text_;
  std::vector<TextSpan> marks_;
};

// A name that is not an identifier is marked: templates write only identifiers, so it came from a
// message.
MarkedText marked_name(std::string name);

}  // namespace quire::chat_internal
