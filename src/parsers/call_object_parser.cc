#include "parsers/call_object_parser.h"

#include <nlohmann/json.hpp>

#include "parsers/parser_text.h"

namespace quire::parsers_internal {
namespace {

constexpr std::size_t kLongestKnownKey = 10;  // "parameters"

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20;
}

bool is_scalar_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
         c == '-' || c == '.';
}

// Whether `c` may stand between the strings of an object or array.
bool is_structural_byte(char c) {
  switch (c) {
    case '{':
    case '}':
    case '[':
    case ']':
    case ':':
    case ',':
    case '"':
      return true;
    default:
      return is_space(c) || is_scalar_byte(c);
  }
}

}  // namespace

CallObjectParser::Event CallObjectParser::next(char c) {
  switch (place_) {
    case Place::kStart:
      if (is_space(c)) return Event::kInside;
      return c == '{' ? go_to(Place::kFirstKey) : Event::kBroken;
    case Place::kFirstKey:
      if (c == '}') return Event::kEnd;
      [[fallthrough]];
    case Place::kNextKey:
      if (is_space(c)) return Event::kInside;
      key_.clear();
      return c == '"' ? go_to(Place::kKey) : Event::kBroken;
    case Place::kKey:
      return in_key(c);
    case Place::kColon:
      if (is_space(c)) return Event::kInside;
      return c == ':' ? go_to(Place::kValueStart) : Event::kBroken;
    case Place::kValueStart:
      return is_space(c) ? Event::kInside : start_value(c);
    case Place::kValue:
      return role_ == Role::kName ? in_name(c) : in_value(c);
    case Place::kScalar:
      return is_scalar_byte(c) ? event_of_value() : after_value(c);
    case Place::kAfterValue:
      return after_value(c);
  }
  return Event::kBroken;
}

CallObjectParser::Event CallObjectParser::in_key(char c) {
  if (is_control(c)) return Event::kBroken;
  if (c == '"' && !escaped_) return go_to(Place::kColon);
  escaped_ = c == '\\' && !escaped_;
  if (key_.size() <= kLongestKnownKey) key_ += c;
  return Event::kInside;
}

CallObjectParser::Event CallObjectParser::start_value(char c) {
  role_ = role_of_key();
  const bool brackets = c == '{' || c == '[' || c == '"';
  if (!brackets && !is_scalar_byte(c)) return Event::kBroken;
  if (role_ == Role::kName && c != '"') return Event::kBroken;
  if (role_ == Role::kArguments) {
    if (c != '{') return Event::kBroken;
    arguments_begun_ = true;
  }
  place_ = brackets ? Place::kValue : Place::kScalar;
  if (brackets) follow_brackets(c);
  return event_of_value();
}

CallObjectParser::Event CallObjectParser::in_value(char c) {
  const bool given_out = role_ == Role::kArguments && name_complete_;
  const bool looks_like_json = in_string_ ? !is_control(c) : is_structural_byte(c);
  if (!given_out && !looks_like_json) return Event::kBroken;
  if (follow_brackets(c)) place_ = Place::kAfterValue;
  return event_of_value();
}

CallObjectParser::Event CallObjectParser::in_name(char c) {
  if (is_control(c)) return Event::kBroken;
  if (!follow_brackets(c)) {
    name_ += c;
    return Event::kInside;
  }
  std::string decoded;
  if (!decode_json_string(name_, decoded) || decoded.empty()) return Event::kBroken;
  name_ = std::move(decoded);
  name_complete_ = true;
  return go_to(Place::kAfterValue);
}

CallObjectParser::Event CallObjectParser::after_value(char c) {
  if (c == '}') return Event::kEnd;
  if (c == ',') return go_to(Place::kNextKey);
  return is_space(c) ? go_to(Place::kAfterValue) : Event::kBroken;
}

CallObjectParser::Event CallObjectParser::go_to(Place place) {
  place_ = place;
  return Event::kInside;
}

CallObjectParser::Event CallObjectParser::event_of_value() const {
  return role_ == Role::kArguments ? Event::kArguments : Event::kInside;
}

CallObjectParser::Role CallObjectParser::role_of_key() const {
  if (key_ == "name" && !name_complete_) return Role::kName;
  if ((key_ == "arguments" || key_ == "parameters") && !arguments_begun_) return Role::kArguments;
  return Role::kOther;
}

// Takes one byte of a value that began with a quote or bracket; true for its last one.
bool CallObjectParser::follow_brackets(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      return depth_ == 0;
    }
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') return --depth_ == 0;
  return false;
}

bool decode_json_string(const std::string& written, std::string& text) {
  const auto json = nlohmann::json::parse('"' + written + '"', nullptr, false);
  if (!json.is_string()) return false;
  text = json.get<std::string>();
  return true;
}

}  // namespace quire::parsers_internal
