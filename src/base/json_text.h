#pragma once
// JSON text from outside, read within bounds.
//
// Thread safety: free functions.
#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "quire/error.h"

namespace quire {

struct JsonLimits {
  int max_depth = 64;                                                // of objects and arrays
  std::size_t max_values = std::numeric_limits<std::size_t>::max();  // in all, at every level
  bool allow_repeated_keys = false;                                  // then the last one counts
};

// what() continues a sentence that begins with the text's name: "not valid JSON: ...".
class JsonError : public Error {
 public:
  explicit JsonError(const std::string& message, std::optional<std::size_t> offset = {})
      : Error(message), offset_(offset) {}
  // The byte, from 0, at which the text stops being JSON; none where a limit was passed.
  std::optional<std::size_t> offset() const { return offset_; }

 private:
  std::optional<std::size_t> offset_;
};

// Parses `text` as one JSON value; its keys keep their order. Throws JsonError if it is not JSON or
// not valid UTF-8, escapes a lone surrogate, has a number beyond double's range, or exceeds
// `limits`. Time is linear in the text.
nlohmann::ordered_json parse_json_text(std::string_view text, const JsonLimits& limits);

// The same for a text that must be an object. Throws Error; its message opens with `where`.
nlohmann::ordered_json parse_json_object(std::string_view text, std::string_view where,
                                         const JsonLimits& limits = {});

// "a number", "a string", ...: what `value` is, for messages.
std::string json_kind(const nlohmann::ordered_json& value);

// Makes `value` null and frees what it held, without allocating. nlohmann's own destructor first
// lists all that a value holds, and ends the process if there is no memory for the list. Recurses
// as deep as the value is nested.
void clear_json(nlohmann::ordered_json& value) noexcept;

// Makes `to` a copy of `from`. Unlike a copy constructor, when it runs out of memory it leaves the
// unfinished copy in `to`, for clear_json().
void copy_json(const nlohmann::ordered_json& from, nlohmann::ordered_json& to);

// Clears a value at the end of its scope, also when an exception ends it.
class JsonClearer {
 public:
  explicit JsonClearer(nlohmann::ordered_json& value) : value_(value) {}
  ~JsonClearer() { clear_json(value_); }
  JsonClearer(const JsonClearer&) = delete;
  JsonClearer& operator=(const JsonClearer&) = delete;

 private:
  nlohmann::ordered_json& value_;
};

}  // namespace quire
