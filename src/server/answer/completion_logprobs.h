#pragma once
// The logprobs of a completion's choice: four parallel lists, as in OpenAI's older API.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json_parts.h"
#include "base/json_writer.h"
#include "quire/request_output.h"

namespace quire::server {

class CompletionLogprobs {
 public:
  using Positions = std::vector<PositionLogprobs>;

  // Begins with the positions of an echoed prompt. The first one has no logprobs, only its token's
  // text, `first_token`. `offset`: that of the next token's text, in characters. Only while
  // empty().
  void set_prompt(std::shared_ptr<const Positions> positions, std::string first_token,
                  int64_t& offset);
  void append(Positions positions, int64_t& offset);
  // Appends `next`, which may contain a prompt only if this is empty.
  void append(CompletionLogprobs next);

  bool empty() const { return offsets_.empty(); }
  size_t size() const { return offsets_.size(); }

  // The value of "logprobs": null if empty.
  void write(JsonWriter& json, bool tokens_as_ids) const;
  // The same in parts, which refer to this object.
  void add_to(JsonParts& body, bool tokens_as_ids) const;

 private:
  const PositionLogprobs& at(size_t i) const;
  void count(const PositionLogprobs& position, int64_t& offset);
  // The i-th item of token_logprobs and of tokens.
  void write_logprob(JsonWriter& json, size_t i) const;
  void write_token(JsonWriter& json, size_t i, bool as_id) const;

  std::shared_ptr<const Positions> prompt_;  // null: not echoed
  Positions own_;
  std::vector<int64_t> offsets_;  // of the prompt's positions and then its own
  std::string first_token_;
};

}  // namespace quire::server
