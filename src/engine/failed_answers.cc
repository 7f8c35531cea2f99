#include "engine/failed_answers.h"

#include <utility>

namespace quire {

void FailedAnswers::add(std::string key, std::string error, Clock::time_point now) {
  const auto known = places_.find(key);
  if (known != places_.end()) forget(known->second);
  // Everything that needs memory comes before the list changes.
  std::list<Failure> added;
  added.push_front({std::move(key), std::move(error), now + limits_.lifetime});
  const Place place = added.begin();
  places_.emplace(place->key, place);
  newest_first_.splice(newest_first_.begin(), added);
  bytes_ += place->bytes();
  while (newest_first_.size() > limits_.max_kept || bytes_ > limits_.max_kept_bytes) {
    forget(std::prev(newest_first_.end()));
  }
}

std::optional<std::string> FailedAnswers::find(std::string_view key, Clock::time_point now) {
  const auto known = places_.find(key);
  if (known == places_.end()) return std::nullopt;
  if (now < known->second->end) return known->second->error;
  forget(known->second);
  return std::nullopt;
}

void FailedAnswers::forget(Place place) {
  bytes_ -= place->bytes();
  places_.erase(place->key);
  newest_first_.erase(place);
}

}  // namespace quire
