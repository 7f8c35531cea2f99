#pragma once
// Whether an answer that had to be calls of tools is whole. Its grammar makes every piece right,
// but stop strings, a timeout and a server that stops can cut it anywhere.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <optional>
#include <string>

#include "parsers/output_parser.h"
#include "quire/request_output.h"
#include "server/api/api_error.h"

namespace quire::server {

// What the parser made of one choice so far.
class ForcedCalls {
 public:
  void add(const ParsedDelta& parsed);
  // Whether there are calls and nothing else, each with all of its arguments.
  bool whole() const { return num_calls_ > 0 && depth_ == 0 && !has_text_; }

 private:
  void read_arguments(const std::string& piece);

  int64_t num_calls_ = 0;
  bool has_text_ = false;  // besides white space
  // In the arguments of the newest call, an object that its grammar has checked.
  int64_t depth_ = 0;     // 1 before its first bracket, too
  bool is_open_ = false;  // the first bracket has come
  bool in_string_ = false;
  bool escaped_ = false;
};

// The error of a choice that ended as `end` says while `calls` were not whole; nothing where the
// answer came to its own end.
std::optional<ApiError> cut_call_error(const ForcedCalls& calls, const CompletionOutput& end);

}  // namespace quire::server
