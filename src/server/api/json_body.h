#pragma once
// The body of a request as a JSON value.
//
// Thread safety: free functions.
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace quire::server {

// Keeps the order of keys: chat templates print the tools of a request.
using Json = nlohmann::ordered_json;

// The deepest nesting, and the most values in all, of a body. A prompt of token ids is the largest
// value that a client has reason to send.
inline constexpr int kMaxBodyDepth = 64;
inline constexpr size_t kMaxBodyValues = size_t{1} << 20;

// Throws ApiError 400, naming the byte offset, if `body` is not one JSON value in valid UTF-8,
// exceeds the limits above, or has a lone surrogate or a number that does not fit a double. If a
// key is given twice, the last one counts, as in Python.
Json parse_body(std::string_view body);

// The same for a body that must be an object.
Json parse_object_body(std::string_view body);

// Whether `value` is that string. nlohmann's == makes a value of its right side, and ends the
// process if there is no memory for it.
bool is_string(const Json& value, std::string_view text);

}  // namespace quire::server
