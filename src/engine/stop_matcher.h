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
  // `stops` are not empty strings and outlive the matcher.
  explicit StopMatcher(const std::vector<std::string>& stops) : stops_(stops) {}

  struct Match {
    size_t begin = 0;  // bytes [begin, end) of the text
    size_t end = 0;
    const std::string* stop = nullptr;
  };

  // `text` has grown at its end since the last call. The match that begins first, of those that
  // were not there before; the longest where several begin there.
  std::optional<Match> find(std::string_view text);
  // Takes what `text` holds now as seen: no match ends in it.
  void skip(std::string_view text) { searched_ = text.size(); }

  // How many bytes of `text` no later match can begin in: its longest end that begins a stop string
  // has to wait.
  size_t safe_length(std::string_view text) const;

 private:
  const std::vector<std::string>& stops_;
  size_t searched_ = 0;  // no match ends at or before this
};

}  // namespace quire
