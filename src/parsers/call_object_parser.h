#pragma once
// Follows the JSON object of one tool call, byte by byte: {"name": "f", "arguments": {…}}.
//
// Keys come in any order; "parameters" means "arguments", other keys are skipped. Until the name is
// known the object must look like JSON, so that text is not mistaken for a call. After that its
// arguments may be anything between matching brackets, since they are streamed as they come.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <string>

namespace quire::parsers_internal {

class CallObjectParser {
 public:
  enum class Event {
    kInside,     // the byte belongs to the object
    kArguments,  // the byte belongs to the arguments' value
    kEnd,        // the byte is the object's closing brace
    kBroken,     // the byte cannot stand here; the parser must not be used on
  };

  Event next(char c);

  bool name_complete() const { return name_complete_; }
  bool arguments_begun() const { return arguments_begun_; }
  // The decoded name once it is complete; before that, its beginning as it was written.
  const std::string& name() const { return name_; }
  // Whether the parser is inside brackets or a string of the arguments; and whether it is inside a
  // string in them.
  bool in_arguments() const { return place_ == Place::kValue && role_ == Role::kArguments; }
  bool in_string() const { return in_string_; }

 private:
  enum class Place {
    kStart,       // before the object's brace
    kFirstKey,    // before a key, or the closing brace of an empty object
    kKey,         // inside of a key
    kColon,       // before the colon
    kValueStart,  // before a value
    kValue,       // inside of a string, object or array
    kScalar,      // inside of a number, true, false or null
    kAfterValue,  // before a comma or the closing brace
    kNextKey,     // before a key
  };
  enum class Role { kName, kArguments, kOther };

  Event in_key(char c);
  Event start_value(char c);
  Event in_value(char c);
  Event in_name(char c);
  Event after_value(char c);
  Event go_to(Place place);
  Event event_of_value() const;
  Role role_of_key() const;
  bool follow_brackets(char c);

  Place place_ = Place::kStart;
  Role role_ = Role::kOther;
  std::string key_;  // as written, without quotes; its beginning where it is longer than known keys
  std::string name_;
  bool name_complete_ = false;
  bool arguments_begun_ = false;
  // Inside of a value.
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// Decodes a JSON string, given without its quotes, into `text`; false where it is malformed.
bool decode_json_string(const std::string& written, std::string& text);

}  // namespace quire::parsers_internal
