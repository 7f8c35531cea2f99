#pragma once
// Constraints as clients write them: OpenAI's response_format, vLLM's structured_outputs and its
// older guided_json, guided_regex and others, llama.cpp's json_schema and grammar, and SGLang's
// json_schema, regex and ebnf.
//
// Thread safety: free functions and plain values.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/raw_json.h"
#include "quire/error.h"
#include "quire/structured_output.h"

namespace quire {

// what() is a whole sentence; it names the field where that helps.
class ConstraintFieldError : public Error {
 public:
  ConstraintFieldError(std::string field, const std::string& message)
      : Error(message), field_(std::move(field)) {}
  // The path of the field at fault: "response_format.json_schema".
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

struct ConstraintField {
  StructuredOutput constraint;
  std::string field;  // the path of what was compiled: "response_format.json_schema.schema"
};

// The constraint that the fields of `object` ask for; none where they ask for none, for instance
// with {"type": "text"}. Other fields of `object` are ignored. `raw` is the text that `object` was
// read from: schemas are used as they are written there. Where it is not known, those given as
// objects are written anew, with numbers as doubles. Throws ConstraintFieldError for malformed
// fields, and where they ask for two constraints.
std::optional<ConstraintField> constraint_of(const nlohmann::ordered_json& object,
                                             const RawJson& raw);

// The names of the fields that constraint_of() reads.
std::vector<std::string_view> constraint_field_names();

}  // namespace quire
