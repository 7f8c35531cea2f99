#include "engine/stop_matcher.h"

#include <algorithm>

namespace quire {

std::optional<StopMatcher::Match> StopMatcher::find(std::string_view text) {
  std::optional<Match> best;
  for (const std::string& stop : stops_) {
    // A new match ends after searched_.
    const size_t from = searched_ + 1 > stop.size() ? searched_ + 1 - stop.size() : 0;
    const size_t begin = text.find(stop, from);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + stop.size();
    if (!best || begin < best->begin || (begin == best->begin && end > best->end)) {
      best = Match{begin, end, &stop};
    }
  }
  searched_ = text.size();
  return best;
}

size_t StopMatcher::safe_length(std::string_view text) const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    const size_t most = std::min(stop.size() - 1, text.size());
    for (size_t length = most; length > held; --length) {
      if (text.ends_with(std::string_view(stop).substr(0, length))) held = length;
    }
  }
  return text.size() - held;
}

}  // namespace quire
