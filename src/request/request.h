#pragma once
// The facts of a request: written once, when the engine accepts it, and never changed.
//
// The engine's outputs, the scheduler's sequences and the ranks' all point to one such object, so
// its prompt is held once. It is plain data: request/batch_encoding.h sends other processes the
// fields that ranks read. Callbacks and constraints are not data: this process finds them in
// request/logits_processors.h and request/token_masks.h. The weights of an adapter live as long as
// a request that names them. Thread safety: immutable.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine_limits.h"
#include "quire/request_output.h"
#include "quire/sampling_params.h"

namespace quire {

struct LoraWeights;  // loader/lora_weights.h

struct Request {
  uint64_t number = 0;                    // in its engine's life no other request has it
  std::string id;                         // unique among an engine's unfinished requests
  std::string prompt;                     // its text; empty for prompts given as token ids
  std::vector<int32_t> prompt_token_ids;  // at least one, fewer than max_model_len
  SamplingParams params;                  // validated; logits_processors is empty
  bool has_logits_processors = false;     // the registry has some for `number`
  bool is_constrained = false;            // the engine's TokenMasks has some for `number`
  uint64_t seed = 0;                      // SamplingParams' or drawn
  std::string cache_salt;  // cached prefixes are shared only between requests of equal salt
  OutputKind output_kind = OutputKind::kCumulative;
  // Steps are shared between clients by weight, in hundredths: 1 to kMaxClientWeight.
  uint64_t client = 0;
  int32_t client_weight = kDefaultClientWeight;
  int64_t priority = 0;  // among the client's requests: lower goes first
  // The adapter; 0: none. Equal numbers mean equal weights.
  uint64_t lora_id = 0;
  std::string lora_name;                    // as the request named it
  std::shared_ptr<const LoraWeights> lora;  // in this process; null where lora_id is 0

  int64_t num_prompt_tokens() const { return static_cast<int64_t>(prompt_token_ids.size()); }
};

}  // namespace quire
