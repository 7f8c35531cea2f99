#pragma once
// JSON text as a tree that keeps the digits of numbers, which nlohmann's loses.
//
// Thread safety: free functions; a tree is immutable once parsed.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/budget.h"

namespace quire::grammar {

struct JsonMember;

struct JsonTree {
  enum class Kind { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string_view raw;  // its part of the text that was parsed, which must outlive the tree
  std::string text;      // of a string, decoded
  std::vector<JsonTree> items;
  std::vector<JsonMember> members;

  JsonTree();
  ~JsonTree();
  JsonTree(JsonTree&&) noexcept;
  JsonTree& operator=(JsonTree&&) noexcept;

  const JsonTree* find(std::string_view name) const;
};

struct JsonMember {
  std::string first;  // its name
  JsonTree second;
};

// "a number", "an object", ...: for messages.
std::string_view kind_name(const JsonTree& value);

// Parses `text` as one JSON value. Throws Error, which continues a sentence that begins with the
// text's name, if it is no JSON or no UTF-8, escapes a lone surrogate, gives a key twice, nests
// deeper than `max_depth` or has more than kMaxTreeValues; or if it takes more than `budget` has
// left.
inline constexpr std::size_t kMaxTreeValues = 500'000;
JsonTree parse_json_tree(std::string_view text, int max_depth, Budget* budget = nullptr);

// Whether numbers with a point or an exponent are those that are written, or the doubles that most
// readers make of them.
enum class Numbers { kExact, kAsRead };

// Two JSON values have the same canonical text if and only if they are equal in JSON Schema's
// sense: 1.0 is 1, and members have no order. `text` must be one valid JSON value.
std::string canonical_json(std::string_view text, Numbers numbers = Numbers::kExact);

// The first characters of `text`, at most `bytes` bytes: for messages.
std::string_view beginning(std::string_view text, std::size_t bytes);

// The length of the valid UTF-8 sequence at `text[at]`, or 0.
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace quire::grammar
