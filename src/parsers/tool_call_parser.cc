#include "parsers/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "parsers/parser_text.h"

namespace quire::parsers_internal {
namespace {

constexpr std::string_view kCallOpenTag = "<tool_call>";
constexpr std::string_view kCallCloseTag = "</tool_call>";
constexpr std::string_view kCallCloseTagOnLine = "\n</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";

std::string_view without_leading_newlines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, bool parallel, ToolCallIds ids)
    : ids_(std::move(ids)),
      marker_(format == ToolFormat::kHermes ? kCallOpenTag : kPythonTag),
      format_(format),
      parallel_(parallel) {
  check(format != ToolFormat::kNone, "a tool call parser needs a format");
  check(ids_ != nullptr, "a tool call parser needs ids");
  if (format == ToolFormat::kLlama3Json) open();  // an answer may begin with a call's brace
}

ParsedDelta ToolCallParser::take() {
  return std::exchange(out_, {});
}

void ToolCallParser::push(std::string_view text) {
  while (!text.empty()) {
    const std::size_t plain = plain_text(text);
    add_content(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) return;
    step(text.front());
    text.remove_prefix(1);
  }
}

void ToolCallParser::step(char c) {
  switch (place_) {
    case Place::kText:
      return in_text(c);
    case Place::kOpening:
      return in_opening(c);
    case Place::kCall:
      return in_call(c);
    case Place::kAfter:
      return format_ == ToolFormat::kHermes ? after_hermes(c) : after_llama(c);
    case Place::kDone:
      return;
  }
}

void ToolCallParser::finish() {
  if (place_ == Place::kCall) add_arguments(std::exchange(closing_, {}));
  if (place_ == Place::kOpening) not_a_call();
  // In kAfter white space and the beginning of a tag or separator are held: the format's own.
  if (place_ != Place::kText) return;
  add_content(marker_.substr(0, std::exchange(tag_, 0)));
  out_.content.append(std::exchange(newlines_, 0), '\n');
}

// How many bytes at the beginning of `text` are content that no marker can begin in.
std::size_t ToolCallParser::plain_text(std::string_view text) {
  if (place_ != Place::kText || tag_ > 0) return 0;
  return std::min(text.find_first_of("<\n"), text.size());
}

void ToolCallParser::in_text(char c) {
  if (c == marker_[tag_]) {
    if (++tag_ == marker_.size()) {
      tag_ = 0;
      open();
      held_ = marker_;
    }
    return;
  }
  if (tag_ > 0) {
    add_content(marker_.substr(0, std::exchange(tag_, 0)));
    in_text(c);
  } else if (c != '\n') {
    add_content({&c, 1});
  } else if (!skip_newlines_) {
    ++newlines_;
  }
}

// Content that does not end with newlines, after those held back.
void ToolCallParser::add_content(std::string_view text) {
  if (skip_newlines_) text = without_leading_newlines(text);
  if (text.empty()) return;
  skip_newlines_ = false;
  out_.content.append(std::exchange(newlines_, 0), '\n');
  out_.content += text;
}

void ToolCallParser::open() {
  place_ = Place::kOpening;
  object_ = CallObjectParser();
  arguments_.clear();
}

void ToolCallParser::in_opening(char c) {
  using Event = CallObjectParser::Event;
  const Event event = object_.next(c);
  if (event == Event::kBroken) {
    not_a_call();
    return in_text(c);
  }
  held_ += c;
  if (event == Event::kArguments) arguments_ += c;
  if (object_.name_complete() && object_.arguments_begun()) {
    begin_call(object_.name());
  } else if (event == Event::kEnd || held_.size() >= kMaxHeldBytes) {
    not_a_call();
  }
}

// The held-back text is content.
void ToolCallParser::not_a_call() {
  place_ = Place::kText;
  const std::string held = std::exchange(held_, {});
  const std::size_t end = held.find_last_not_of('\n') + 1;  // 0 where there is none
  add_content(std::string_view(held).substr(0, end));
  if (!skip_newlines_) newlines_ += held.size() - end;
}

void ToolCallParser::begin_call(const std::string& name) {
  place_ = Place::kCall;
  held_.clear();
  newlines_ = 0;
  closing_.clear();
  ToolCallDelta call;
  call.index = calls_++;
  call.id = ids_();
  call.name = name;
  out_.tool_calls.push_back(std::move(call));
  add_arguments(std::exchange(arguments_, {}));
}

void ToolCallParser::in_call(char c) {
  using Event = CallObjectParser::Event;
  if (format_ == ToolFormat::kHermes && object_.in_arguments() && in_closing_tag(c)) return;
  switch (object_.next(c)) {
    case Event::kInside:
      return;
    case Event::kArguments:
      return add_arguments({&c, 1});
    case Event::kEnd:
      return end_call(Place::kAfter);
    case Event::kBroken:
      end_call(Place::kAfter);
      return step(c);
  }
}

// Whether `c` belongs, or may yet belong, to a closing tag that ends arguments which never end by
// themselves. No string of JSON holds a line break, so there it counts at the beginning of a line.
bool ToolCallParser::in_closing_tag(char c) {
  if (!closing_.empty()) {
    const std::string_view tag = closing_[0] == '\n' ? kCallCloseTagOnLine : kCallCloseTag;
    if (c == tag[closing_.size()]) {
      closing_ += c;
      if (closing_.size() == tag.size()) end_call(Place::kText);
      return true;
    }
    for (const char byte : closing_) object_.next(byte);
    add_arguments(std::exchange(closing_, {}));
  }
  if (c != '\n' && (c != '<' || object_.in_string())) return false;
  closing_ = c;
  return true;
}

void ToolCallParser::add_arguments(std::string_view text) {
  if (text.empty()) return;
  const int index = calls_ - 1;
  if (out_.tool_calls.empty() || out_.tool_calls.back().index != index) {
    out_.tool_calls.emplace_back().index = index;
  }
  out_.tool_calls.back().arguments += text;
}

void ToolCallParser::end_call(Place next) {
  skip_newlines_ = true;
  tag_ = 0;
  separated_ = false;
  place_ = parallel_ ? next : Place::kDone;
}

void ToolCallParser::after_hermes(char c) {
  if (tag_ == 0 && is_space(c) && held_.size() < kMaxHeldBytes) {
    held_ += c;
    return;
  }
  if (c != kCallCloseTag[tag_]) return nothing_after(c);
  held_ += c;
  if (++tag_ < kCallCloseTag.size()) return;
  held_.clear();
  tag_ = 0;
  place_ = Place::kText;
}

void ToolCallParser::after_llama(char c) {
  const bool separator = c == ';' && !separated_;
  if ((is_space(c) || separator) && held_.size() < kMaxHeldBytes) {
    separated_ = separated_ || separator;
    held_ += c;
    return;
  }
  if (c != '{') return nothing_after(c);
  open();
  in_opening(c);
}

// Neither a tag nor another call follows: what was held back is content.
void ToolCallParser::nothing_after(char c) {
  place_ = Place::kText;
  tag_ = 0;
  for (const char byte : std::exchange(held_, {})) in_text(byte);
  in_text(c);
}

}  // namespace quire::parsers_internal
