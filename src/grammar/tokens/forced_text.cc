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
  for (int byte = 0; byte < 256; ++byte) {
    if (!matcher.push(static_cast<uint8_t>(byte))) continue;
    matcher.pop(1);
    if (only) return std::nullopt;
    only = static_cast<uint8_t>(byte);
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
