#include "engine/draft_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "quire/error.h"
#include "quire/model_text.h"

namespace quire {

void check_draft_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& draft_model) {
  if (!has_tokenizer(draft_model)) return;
  const Tokenizer draft = load_tokenizer(draft_model);
  const int32_t num_ids = std::min(tokenizer.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < num_ids; ++id) {
    const std::optional<std::string> expected = tokenizer.id_to_token(id);
    const std::optional<std::string> found = draft.id_to_token(id);
    if (!expected || !found || *expected == *found) continue;
    throw Error(
        fmt::format("--speculative-config: token {} of the draft model {} is \"{}\", and of the "
                    "model \"{}\"; expected a draft model with the same tokens.",
                    id, draft_model.string(), *found, *expected));
  }
}

}  // namespace quire
