#include "loadgen/text_checker.h"

#include <algorithm>
#include <unordered_map>

namespace quire::loadgen {
namespace {

constexpr size_t kBytesBefore = 20;
constexpr size_t kExcerptBytes = 80;

std::string excerpt(std::string_view text, size_t byte) {
  const size_t start = byte - std::min(byte, kBytesBefore);
  return std::string(text.substr(std::min(start, text.size()), kExcerptBytes));
}

}  // namespace

TextChecker::TextChecker(const std::vector<LoadRequest>& requests, bool expect_identical)
    : expect_identical_(expect_identical), active_(expect_identical) {
  // A body with two expected texts keeps both: each line of a data set is checked as it stands.
  std::unordered_map<std::string, size_t> known;
  for (const LoadRequest& request : requests) {
    active_ = active_ || request.expected_text.has_value();
    std::string key = request.path + '\n' + request.body;
    if (request.expected_text) key += '\n' + *request.expected_text;
    const auto [place, is_new] = known.emplace(std::move(key), texts_.size());
    if (is_new) texts_.push_back(request.expected_text);
    text_of_.push_back(place->second);
  }
}

std::optional<TextMismatch> TextChecker::check(size_t request, std::string_view text) {
  std::optional<std::string>& expected = texts_.at(text_of_.at(request));
  if (!expected) {
    if (expect_identical_) expected = text;
    return std::nullopt;
  }
  if (*expected == text) return std::nullopt;
  const auto [first, second] =
      std::mismatch(expected->begin(), expected->end(), text.begin(), text.end());
  const auto byte = static_cast<size_t>(first - expected->begin());
  return TextMismatch{.request = request,
                      .byte = byte,
                      .expected = excerpt(*expected, byte),
                      .got = excerpt(text, byte)};
}

}  // namespace quire::loadgen
