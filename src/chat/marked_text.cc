#include "chat/marked_text.h"

#include <algorithm>

namespace quire::chat_internal {

void MarkedText::append(const MarkedText& source, std::size_t begin, std::size_t size) {
  const std::size_t offset = text_.size();
  const std::size_t end = begin + size;
  text_.append(source.text_, begin, size);
  const auto first = std::partition_point(source.marks_.begin(), source.marks_.end(),
                                          [&](const TextSpan& span) { return span.end <= begin; });
  for (auto span = first; span != source.marks_.end() && span->begin < end; ++span) {
    mark(offset + std::max(span->begin, begin) - begin, offset + std::min(span->end, end) - begin);
  }
}

void MarkedText::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!marks_.empty() && marks_.back().end == begin) {
    marks_.back().end = end;
  } else {
    marks_.push_back({begin, end});
  }
}

MarkedText marked_name(std::string name) {
  const bool identifier = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return MarkedText(std::move(name), !identifier);
}

}  // namespace quire::chat_internal
