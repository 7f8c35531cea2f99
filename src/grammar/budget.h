#pragma once
// The cost limits of compiling one grammar: time and memory, counted where they are spent.
//
// Thread safety: one thread at a time.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

namespace quire::grammar {

struct CompileLimits {
  std::chrono::milliseconds time{2000};
  // For compiling a part: when the time of the whole ends.
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::size_t source_bytes = std::size_t{1} << 20;  // of a schema, grammar or choices
  std::size_t regex_bytes = std::size_t{64} << 10;  // of each regular expression
  bool assert_formats = true;                       // else "format" is an annotation
  // If not null, the counted memory of the result is added here.
  std::size_t* result_bytes = nullptr;
};

class Budget {
 public:
  explicit Budget(const CompileLimits& limits)
      : limits_(limits),
        end_(std::min(std::chrono::steady_clock::now() + limits.time, limits.end)) {}
  ~Budget() {
    if (limits_.result_bytes != nullptr) *limits_.result_bytes += bytes_;
  }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const CompileLimits& limits() const { return limits_; }
  // Names the part that is being compiled, for the error of an exceeded limit.
  void enter(const std::string& place) { place_ = place; }
  // Counts memory of the grammar or its construction. Throws Error above the limit.
  void take(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.memory_bytes) fail_memory();
  }
  void give_back(std::size_t bytes) { bytes_ -= bytes; }
  // To be called in every loop whose length the input decides. Throws Error after the time limit.
  void step() {
    if ((++steps_ & 255) == 0) check_time();
  }
  void check_time() const;

 private:
  [[noreturn]] void fail_memory() const;

  CompileLimits limits_;
  std::chrono::steady_clock::time_point end_;
  std::string place_ = "#";
  std::size_t bytes_ = 0;
  std::size_t steps_ = 0;
};

// Memory that is needed only while a part is compiled.
class ScratchMemory {
 public:
  explicit ScratchMemory(Budget& budget) : budget_(budget) {}
  ~ScratchMemory() { budget_.give_back(bytes_); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  void take(std::size_t bytes) {
    bytes_ += bytes;
    budget_.take(bytes);
  }

 private:
  Budget& budget_;
  std::size_t bytes_ = 0;
};

}  // namespace quire::grammar
