#pragma once
// The body of a request as a JSON value.
//
// Thread safety: free functions.
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace quire::server {

// Keeps the order of keys: chat templates print the tools of a request.
using Json = nlohmann::ordered_json;

// The deepest nesting, and the most values in all, that a body may have. A prompt of token ids is
// the largest thing that a client has reason to send.
inline constexpr int kMaxBodyDepth = 64;
inline constexpr size_t kMaxBodyValues = size_t{1} << 20;

// Throws ApiError 400, naming the byte offset, if `body` is not one JSON value in valid UTF-8, is
// beyond the limits above, or holds a lone surrogate or a number that does not fit a double. Of a
// key given twice the last counts, as in Python.
Json parse_body(std::string_view body);

// The same, of an object.
Json parse_object_body(std::string_view body);

// Whether `value` is that string. nlohmann's == makes a value of its right side, and ends the
// process where there is no memory for that.
bool is_string(const Json& value, std::string_view text);

}  // namespace quire::server
