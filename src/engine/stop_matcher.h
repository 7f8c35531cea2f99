#pragma once
// Looks for stop strings in a text that grows.
//
// Thread safety: none needed; one a sequence.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopMatcher {
 public:
  // `stops` are not empty strings; they must outlive the matcher.
  explicit StopMatcher(const std::vector<std::string>& stops) : stops_(stops) {}

  struct Match {
    size_t begin = 0;  // bytes [begin, end) of the text
    size_t end = 0;
    const std::string* stop = nullptr;
  };

  // `text` has grown at its end since the last call. Returns the first new match; the longest where
  // several begin at the same byte.
  std::optional<Match> find(std::string_view text);
  // Marks all of `text` as searched: later matches end behind it.
  void skip(std::string_view text) { searched_ = text.size(); }

  // How many bytes of `text` can be given out: no later match begins in them. The rest may be the
  // beginning of a stop string.
  size_t safe_length(std::string_view text) const;

 private:
  const std::vector<std::string>& stops_;
  size_t searched_ = 0;  // no match ends at or before this
};

}  // namespace quire
