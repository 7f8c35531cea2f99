#pragma once
// The bytes that come next in every text of a language: they need no choice.
//
//   ForcedText forced(matcher.clone());
//   forced.text();    // "name\": " where an object has one member left, of that name
//   forced.drop(4);   // the text has gone on by "name"
//
// A byte is looked for once, at one push for each that may be the one (ByteMatcher::next_bytes), so
// following a text costs that for each of its forced bytes and little elsewhere. Thread safety: one
// thread at a time each.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "grammar/tokens/byte_matcher.h"

namespace quire::grammar {

class ForcedText {
 public:
  // So far it looks ahead.
  static constexpr size_t kMostBytes = 64;

  // From where `at` is.
  explicit ForcedText(std::unique_ptr<ByteMatcher> at);
  ForcedText(const ForcedText& other);
  ForcedText(ForcedText&&) = default;
  ForcedText& operator=(const ForcedText&) = delete;
  ForcedText& operator=(ForcedText&&) = default;

  std::string_view text() const { return text_; }
  // Whether nothing can follow it.
  bool ends() const { return ahead_->must_end(); }
  // The place has moved on by the first `count` bytes of the text.
  void drop(size_t count);

 private:
  void look_ahead();

  std::unique_ptr<ByteMatcher> ahead_;  // behind text_
  std::string text_;
};

}  // namespace quire::grammar
