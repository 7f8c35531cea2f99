#pragma once
// Clients' own JSON schemas (of tools' parameters), as far as JsonSchemas can check them.
//
// Thread safety: free functions.
#include <optional>

#include "server/api/json_body.h"
#include "server/api/json_schema.h"

namespace quire::server {

// `schema` without what JsonSchemas does not check: what the result refuses, `schema` refuses, too,
// while some that `schema` refuses passes ($ref, pattern, if, contains, ...). Patterns are left out
// because matching a client's own can take for ever.
Json checkable_schema(const Json& schema);

// What keeps `value` from being what `schema` says, as far as that can be checked. A path begins
// with `name`.
std::optional<SchemaViolation> check_against(const Json& schema, const Json& value,
                                             std::string_view name);

}  // namespace quire::server
