#include "grammar/tokens/forced_text.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace quire::grammar {
namespace {

// The byte that has to come next, if there is only one and the text cannot end.
std::optional<uint8_t> only_byte(ByteMatcher& matcher) {
  if (matcher.can_end()) return std::nullopt;
  std::optional<uint8_t> only;
  // Whether this is the second one.
  const auto takes_another = [&](uint8_t byte) {
    if (!matcher.push(byte)) return false;
    matcher.pop(1);
    const bool is_second = only.has_value();
    only = byte;
    return is_second;
  };
  if (const std::optional<std::string> bytes = matcher.next_bytes()) {
    for (const char byte : *bytes) {
      if (takes_another(static_cast<uint8_t>(byte))) return std::nullopt;
    }
    return only;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (takes_another(static_cast<uint8_t>(byte))) return std::nullopt;
  }
  return only;
}

}  // namespace

ForcedText::ForcedText(std::unique_ptr<ByteMatcher> at) : ahead_(std::move(at)) {
  look_ahead();
}

ForcedText::ForcedText(const ForcedText& other)
    : ahead_(other.ahead_->clone()), text_(other.text_) {}

void ForcedText::look_ahead() {
  while (text_.size() < kMostBytes) {
    const std::optional<uint8_t> byte = only_byte(*ahead_);
    if (!byte) return;
    ahead_->push(*byte);
    ahead_->commit();
    text_.push_back(static_cast<char>(*byte));
  }
}

void ForcedText::drop(size_t count) {
  text_.erase(0, count);
  look_ahead();
}

}  // namespace quire::grammar
