#pragma once
// Constraints that could not be compiled, and why, so that asking again costs nothing.
//
// The newest are kept, limited in number and bytes, and each only for some time: a constraint that
// took too long on a busy machine may compile later. Thread safety: one thread at a time.
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace quire {

struct FailedAnswerLimits {
  std::size_t max_kept = 256;
  std::size_t max_kept_bytes = std::size_t{32} << 20;
  std::chrono::seconds lifetime = std::chrono::minutes(10);
};

class FailedAnswers {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FailedAnswers(const FailedAnswerLimits& limits) : limits_(limits) {}

  // `key`: everything that defines the constraint. One that is larger than the limit on all bytes
  // is not kept, nor one for which there is no memory (this then throws).
  void add(std::string key, std::string error, Clock::time_point now);
  // The error of a constraint that is kept; nothing for others.
  std::optional<std::string> find(std::string_view key, Clock::time_point now);

 private:
  struct Failure {
    std::string key;
    std::string error;
    Clock::time_point end;
    std::size_t bytes() const { return key.size() + error.size(); }
  };
  using Place = std::list<Failure>::iterator;
  void forget(Place place);

  FailedAnswerLimits limits_;
  std::list<Failure> newest_first_;
  std::unordered_map<std::string_view, Place> places_;  // by the keys in the list
  std::size_t bytes_ = 0;
};

}  // namespace quire
