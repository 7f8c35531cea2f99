#pragma once
// The answer of /tokenize, in vLLM's form.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <string>
#include <vector>

#include "base/json_parts.h"
#include "quire/tokenizer.h"
#include "server/answer/body_source.h"
#include "server/api/model_info.h"

namespace quire::server {

// {"count":...,"max_model_len":...,"tokens":[...],"token_strs":[...] or null}
class TokenizeBody : public BodySource {
 public:
  // `tokenizer` must outlive it.
  TokenizeBody(std::vector<int32_t> tokens, bool with_texts, const Tokenizer& tokenizer,
               const ModelInfo& model);

  bool more_follows() const override { return !json_.complete(); }
  std::string next_piece() override { return json_.next(kPieceBytes); }

 private:
  const std::vector<int32_t> tokens_;
  const Tokenizer& tokenizer_;
  JsonParts json_;
};

}  // namespace quire::server
