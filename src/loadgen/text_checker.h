#pragma once
// Compares answers' texts with what was expected, or with earlier answers to the same request.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loadgen/request.h"

namespace quire::loadgen {

struct TextMismatch {
  size_t request = 0;    // its index among the requests
  size_t byte = 0;       // where the texts part
  std::string expected;  // from a few bytes before that, shortened
  std::string got;
};

class TextChecker {
 public:
  // With `expect_identical`, requests with the same body must have the same text each time.
  TextChecker(const std::vector<LoadRequest>& requests, bool expect_identical);

  // Whether anything is compared, so that texts must be kept.
  bool active() const { return active_; }

  // Nothing if the text is right or there is nothing to compare it with.
  std::optional<TextMismatch> check(size_t request, std::string_view text);

 private:
  bool expect_identical_;
  bool active_ = false;
  std::vector<size_t> text_of_;                    // a request's place in texts_
  std::vector<std::optional<std::string>> texts_;  // one for each different body
};

}  // namespace quire::loadgen
