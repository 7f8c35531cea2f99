#pragma once
// What one render has used so far, against its limits.
//
// Every string and list made while rendering is charged here and given back when it dies; every
// evaluation counts as a step. So a hostile template ends with an Error before it exhausts the
// machine's memory. One Runtime serves one render on one thread, and outlives every Value made with
// it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "chat/marked_text.h"
#include "quire/chat_template.h"

namespace quire::chat_internal {

class Runtime {
 public:
  explicit Runtime(const TemplateLimits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const TemplateLimits& limits() const { return limits_; }

  // The line of the template that is being evaluated, for error messages.
  int line = 1;

  // Throws the Error "Chat template, line N: message".
  [[noreturn]] void fail(std::string_view message) const;

  void step(std::uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  // Counts the handling of `bytes` of text.
  void work(std::size_t bytes) { step(1 + bytes / 16); }

  void take(std::size_t bytes) {
    live_bytes_ += bytes;
    if (live_bytes_ > limits_.max_memory_bytes) fail_memory(bytes);
  }
  void give_back(std::size_t bytes) { live_bytes_ -= bytes; }

  // Throw where a string of `bytes`, a list of `items` or values nested `depth` deep is over the
  // limit.
  void check_string(std::size_t bytes) const {
    if (bytes > limits_.max_string_bytes) fail_string();
  }
  void check_output(std::size_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail_output();
  }
  void check_items(std::size_t items) const {
    if (items > limits_.max_list_items) fail_items();
  }
  void check_depth(int depth) const {
    if (depth > limits_.max_depth) fail_depth();
  }

  // Holds one level of evaluation for a scope.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) {
      if (runtime_.depth_ >= runtime_.limits_.max_depth) runtime_.fail_depth();
      ++runtime_.depth_;
    }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory(std::size_t bytes);
  [[noreturn]] void fail_string() const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_items() const;
  [[noreturn]] void fail_depth() const;

  TemplateLimits limits_;
  std::uint64_t steps_ = 0;
  std::size_t live_bytes_ = 0;
  int depth_ = 0;
};

// A text that grows within the limits. Its bytes count as memory while it lives.
class TextBuilder {
 public:
  // `is_output`: this is the rendered text, which has a limit of its own.
  explicit TextBuilder(Runtime& runtime, bool is_output = false)
      : runtime_(runtime), is_output_(is_output) {}
  ~TextBuilder() { runtime_.give_back(text_.num_bytes()); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view text) {
    check_room(text.size());
    runtime_.take(text.size());
    text_.append(text);
  }
  void append(const MarkedText& text) { append_part(text, text.text()); }
  // `part` lies within source.text().
  void append_part(const MarkedText& source, std::string_view part) {
    check_room(part.size());
    const std::size_t before = text_.num_bytes();
    text_.append_part(source, part);
    runtime_.take(text_.num_bytes() - before);
  }
  const std::string& text() const { return text_.text(); }
  MarkedText release() {
    runtime_.give_back(text_.num_bytes());
    return std::exchange(text_, MarkedText());
  }

 private:
  void check_room(std::size_t bytes) {
    if (is_output_) {
      runtime_.check_output(text_.size() + bytes);
    } else {
      runtime_.check_string(text_.size() + bytes);
    }
    runtime_.work(bytes);
  }

  Runtime& runtime_;
  bool is_output_;
  MarkedText text_;
};

}  // namespace quire::chat_internal
