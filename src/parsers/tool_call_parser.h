#pragma once
// Takes the tool calls out of an answer's content.
//
// output_parser.h has the contract. Works byte by byte, so the result does not depend on how the
// text is cut, and reads no byte twice except a few held back at a marker. Thread safety: one
// thread at a time.
#include <cstddef>
#include <string>
#include <string_view>

#include "parsers/call_object_parser.h"
#include "parsers/output_parser.h"

namespace quire::parsers_internal {

class ToolCallParser {
 public:
  // `format` is not kNone.
  ToolCallParser(ToolFormat format, bool parallel, ToolCallIds ids);

  void push(std::string_view text);
  void finish();
  // What has become certain since the last take(): content and tool calls.
  ParsedDelta take();

  bool has_tool_calls() const { return calls_ > 0; }
  bool done() const { return place_ == Place::kDone; }

 private:
  enum class Place {
    kText,     // content, in which a marker may come
    kOpening,  // what may become a call is held back
    kCall,     // in the object of a call whose name is out
    kAfter,    // after the object: the closing tag, or the separator
    kDone,     // nothing more may come
  };

  void step(char c);
  // Content.
  std::size_t plain_text(std::string_view text);
  void in_text(char c);
  void add_content(std::string_view text);
  // What may become a call.
  void open();
  void in_opening(char c);
  void not_a_call();
  // A call.
  void begin_call(const std::string& name);
  void in_call(char c);
  bool in_closing_tag(char c);
  void add_arguments(std::string_view text);
  void end_call(Place next);
  // After a call.
  void after_hermes(char c);
  void after_llama(char c);
  void nothing_after(char c);

  ToolCallIds ids_;
  std::string_view marker_;  // what begins a call in content
  ParsedDelta out_;
  CallObjectParser object_;
  std::string held_;       // kOpening, kAfter: the text since the marker, or since the call
  std::string arguments_;  // kOpening: arguments that came before the name
  std::string closing_;    // kCall: the beginning of a closing tag inside of the arguments

  std::size_t tag_ = 0;       // bytes of a marker or tag that have come
  std::size_t newlines_ = 0;  // of the content, held back; dropped if a call comes

  ToolFormat format_;
  Place place_ = Place::kText;
  int calls_ = 0;  // begun
  bool parallel_;
  bool skip_newlines_ = false;  // the content goes on after a call
  bool separated_ = false;      // kAfter: a ";" has come
};

}  // namespace quire::parsers_internal
