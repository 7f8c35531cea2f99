#include "chat/runtime.h"

#include <string>

#include "chat/lexer.h"

namespace quire::chat_internal {

void Runtime::fail(std::string_view message) const {
  fail_at(line, message);
}

void Runtime::fail_steps() const {
  fail("the template needs more than " + std::to_string(limits_.max_steps) +
       " steps (TemplateLimits::max_steps); it may loop without end.");
}

void Runtime::fail_memory(std::size_t bytes) {
  live_bytes_ -= bytes;
  fail("the template needs more than " + std::to_string(limits_.max_memory_bytes) +
       " bytes of memory (TemplateLimits::max_memory_bytes).");
}

void Runtime::fail_string() const {
  fail("the template makes a string of more than " + std::to_string(limits_.max_string_bytes) +
       " bytes (TemplateLimits::max_string_bytes).");
}

void Runtime::fail_output() const {
  fail("the rendered text is longer than " + std::to_string(limits_.max_output_bytes) +
       " bytes (TemplateLimits::max_output_bytes).");
}

void Runtime::fail_items() const {
  fail("the template makes a list of more than " + std::to_string(limits_.max_list_items) +
       " items (TemplateLimits::max_list_items).");
}

void Runtime::fail_depth() const {
  fail("the template nests values or calls more than " + std::to_string(limits_.max_depth) +
       " deep (TemplateLimits::max_depth).");
}

}  // namespace quire::chat_internal
