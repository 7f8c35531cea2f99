#pragma once
// From the body of a call to prompts of token ids and the parser of its answer: the part of a
// generation's life that takes time but touches no shared state, done on worker threads.
//
// Thread safety: free functions of immutable arguments.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parsers/output_parser.h"
#include "server/api/generation_request.h"
#include "server/request_budget.h"
#include "server/service_context.h"

namespace quire::server {

struct PreparedGeneration {
  GenerationRequest request;
  std::vector<std::vector<int32_t>> prompts;  // token ids, each shorter than max_model_len
  OutputParserConfig parser;                  // chats; its next_tool_call_id is not set
  std::shared_ptr<const void> constraint;     // what holds the answer's, compiled
  bool needs_compiling = false;               // by compile_quickly() or compile_constraint()
  std::string constraint_begins_after;        // constrain_answer()'s argument
  int64_t num_prompt_tokens() const;          // over all prompts
  // Memory while it runs: of the prompts, their log-probabilities and the answer's constraint.
  int64_t running_bytes() const;
};

// Throws ApiError for any fault of the body, and as RequestBudget does: the body, the prompts and
// the parts of the answer whose size is known are charged to `budget` before the work. Leaves a
// constraint that is not compiled yet to compile_constraint(), the adapter to read_adapter().
PreparedGeneration prepare_generation(RequestKind kind, std::string body,
                                      const ServiceContext& context, RequestBudget& budget);

// Compiles the answer's constraint, unless that takes longer than a twentieth of a second: then it
// leaves it to compile_constraint(). Throws ApiError for what cannot be enforced.
void compile_quickly(PreparedGeneration& prepared, const ServiceContext& context);
// Compiles the answer's constraint, which may take seconds. Throws ApiError for what cannot be
// enforced.
void compile_constraint(PreparedGeneration& prepared, const ServiceContext& context);

// The weights of an adapter that a request names, which may take seconds to read. Throws ApiError
// 404 where it is not loaded any more, 500 where its folder cannot be read. Waiting requests hold
// no weights, or the queue would fill the memory.
HeldLora read_adapter(const std::string& name, const ServiceContext& context);
// The same without reading: nothing where the weights are not in memory.
std::optional<HeldLora> find_adapter(const std::string& name, const ServiceContext& context);

// The ids of `text`, charged to `budget`. In the spans `from_messages` no special tokens are
// recognised, unless parse_special_tokens is set. Throws ApiError 400 naming `param` for invalid
// UTF-8, and where there is no tokenizer.
std::vector<int32_t> encode(const ServiceContext& context, const std::string& text,
                            std::span<const TextSpan> from_messages, bool add_special_tokens,
                            const std::string& param, RequestBudget& budget);

}  // namespace quire::server
