#include "parsers/reasoning_parser.h"

#include <utility>

#include "parsers/output_parser.h"
#include "parsers/parser_text.h"

namespace quire::parsers_internal {
namespace {

constexpr std::string_view kOpenTag = "<think>";
constexpr std::string_view kCloseTag = "</think>";

}  // namespace

ReasoningParser::ReasoningParser(PromptThinking thinking)
    : open_(thinking == PromptThinking::kOpen),
      place_(thinking == PromptThinking::kClosed ? Place::kContent : Place::kStart) {}

void ReasoningParser::push(std::string_view text, std::string& reasoning, std::string& content) {
  while (!text.empty() && place_ != Place::kContent) {
    if (place_ == Place::kContentStart) {
      text.remove_prefix(skip_newlines(text));
      continue;
    }
    const char c = text.front();
    text.remove_prefix(1);
    if (place_ == Place::kStart) {
      at_start(c, reasoning, content);
    } else {
      in_reasoning(c, reasoning);
    }
  }
  content += text;
}

void ReasoningParser::finish(std::string& reasoning, std::string& content) {
  if (place_ == Place::kStart) give_start(reasoning, content);
  if (place_ != Place::kReasoning) return;
  add_reasoning(kCloseTag.substr(0, std::exchange(tag_, 0)), reasoning);
  if (reasoning_begun_) reasoning.append(std::exchange(newlines_, 0), '\n');
}

void ReasoningParser::at_start(char c, std::string& reasoning, std::string& content) {
  held_ += c;
  if (c == kOpenTag[tag_]) {
    if (++tag_ < kOpenTag.size()) return;
    held_.clear();
    tag_ = 0;
    place_ = Place::kReasoning;
    return;
  }
  if (tag_ == 0 && is_space(c) && held_.size() < kMaxHeldBytes) return;
  give_start(reasoning, content);
}

// No <think> comes: what was held is content, or reasoning where the prompt opened it.
void ReasoningParser::give_start(std::string& reasoning, std::string& content) {
  const std::string held = std::exchange(held_, {});
  tag_ = 0;
  if (!open_) {
    place_ = Place::kContent;
    content += held;
    return;
  }
  place_ = Place::kReasoning;
  for (const char c : held) in_reasoning(c, reasoning);
}

void ReasoningParser::in_reasoning(char c, std::string& reasoning) {
  if (c == kCloseTag[tag_]) {
    if (++tag_ < kCloseTag.size()) return;
    tag_ = 0;
    newlines_ = 0;
    place_ = Place::kContentStart;
    return;
  }
  if (tag_ > 0) {
    add_reasoning(kCloseTag.substr(0, std::exchange(tag_, 0)), reasoning);
    in_reasoning(c, reasoning);
  } else if (c == '\n') {
    ++newlines_;
  } else {
    add_reasoning({&c, 1}, reasoning);
  }
}

// Appends text without newlines, after those held back; the ones before all reasoning are dropped.
void ReasoningParser::add_reasoning(std::string_view text, std::string& reasoning) {
  if (text.empty()) return;
  const std::size_t newlines = std::exchange(newlines_, 0);
  if (reasoning_begun_) reasoning.append(newlines, '\n');
  reasoning_begun_ = true;
  reasoning += text;
}

// How many bytes of `text` are newlines before the content; ends the skipping at another byte.
std::size_t ReasoningParser::skip_newlines(std::string_view text) {
  const std::size_t end = text.find_first_not_of('\n');
  if (end == std::string_view::npos) return text.size();
  place_ = Place::kContent;
  return end;
}

}  // namespace quire::parsers_internal
