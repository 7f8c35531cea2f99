#pragma once
// Adds the tokens that belong around a text, such as BOS: the post_processor of tokenizer.json.
// Immutable; any thread. Errors: quire::Error, naming the field that is not supported.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tokenizer/json_field.h"

namespace quire::tokenizer_internal {

class PostProcessor {
 public:
  // `field` is the post_processor, nullopt when there is none.
  explicit PostProcessor(const std::optional<JsonField>& field);

  // Puts `before` and `after` around the text, in place of what the file says.
  PostProcessor(std::vector<std::int32_t> before, std::vector<std::int32_t> after);

  // `ids` with what belongs around them, where `add_special_tokens` holds.
  std::vector<std::int32_t> run(std::vector<std::int32_t> ids, bool add_special_tokens) const;

 private:
  struct Part {
    bool is_text;
    std::vector<std::int32_t> ids;  // when it is not
  };

  void add_steps(const JsonField& field);
  void set_template(const JsonField& field);

  std::vector<Part> parts_;  // empty: nothing but the text
};

}  // namespace quire::tokenizer_internal
