#pragma once
// Saves a part of the interpreter's state (its scope, its output) and restores it at the end of a
// block.
#include <string>
#include <utility>

#include "chat/interpreter.h"

namespace quire::chat_internal {

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, ScopePtr scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  ScopePtr outer_;
};

class Interpreter::OutputCapture {
 public:
  explicit OutputCapture(Interpreter& interpreter)
      : interpreter_(interpreter),
        text_(interpreter.runtime_),
        outer_(std::exchange(interpreter.out_, &text_)) {}
  ~OutputCapture() { interpreter_.out_ = outer_; }
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  MarkedText release() { return text_.release(); }

 private:
  Interpreter& interpreter_;
  TextBuilder text_;
  TextBuilder* outer_;
};

}  // namespace quire::chat_internal
