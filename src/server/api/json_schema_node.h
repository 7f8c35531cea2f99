#pragma once
// A compiled JSON schema: JsonSchemas consists of these nodes.
//
// Thread safety: plain values, not changed once compiled.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/api/json_schema.h"

namespace quire::server {

// The types that a schema allows, as bits.
enum TypeBit : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kNumberType = 8,  // with a fraction; "number" allows both
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAnyType = 127,
};

// The one type of `value`.
TypeBit type_of(const Json& value);

struct JsonSchemas::Node {
  uint8_t types = kAnyType;
  std::vector<std::string> type_names{};  // as the schema lists them; empty: any
  std::optional<Json> constant{};
  std::optional<std::vector<Json>> choices{};  // enum

  std::optional<Json> minimum{};
  std::optional<Json> maximum{};
  std::optional<Json> exclusive_minimum{};
  std::optional<Json> exclusive_maximum{};

  std::optional<size_t> min_length{};
  std::optional<size_t> max_length{};
  std::optional<std::regex> pattern{};
  std::string pattern_text{};

  const Node* items = nullptr;
  std::optional<size_t> min_items{};
  std::optional<size_t> max_items{};

  std::unordered_map<std::string, const Node*> properties{};
  std::vector<std::string> property_names{};  // in the schema's order
  std::vector<std::string> required{};
  bool additional_allowed = true;
  const Node* additional = nullptr;  // of properties that are not listed
  const Node* name_schema = nullptr;
  std::optional<size_t> min_properties{};
  std::optional<size_t> max_properties{};

  std::vector<const Node*> all_of{};
  std::vector<const Node*> any_of{};
  std::vector<const Node*> one_of{};
  const Node* negated = nullptr;

  std::optional<std::string> error{};  // x-error
  std::optional<std::string> param{};  // x-param
};

struct JsonSchemas::Compiled {
  std::deque<Node> nodes{};  // addresses stay
  std::unordered_map<std::string, const Node*> named{};
};

// The first violation of `node` by `value`.
std::optional<SchemaViolation> check_node(const JsonSchemas::Node& node, const Json& value);

}  // namespace quire::server
