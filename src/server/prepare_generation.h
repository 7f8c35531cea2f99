#pragma once
// From the body of a call to prompts of token ids, and how its answer is to be read: the part of a
// generation's life that takes time and touches nothing that is shared, done on worker threads.
//
// Thread safety: free functions of what is immutable.
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
  bool needs_compiling = false;               // by compile_constraint()
  std::string constraint_begins_after;        // constrain_answer()'s argument
  int64_t num_prompt_tokens() const;          // over all prompts
  // Of the prompts, their log-probabilities and the answer's constraint, while it runs.
  int64_t running_bytes() const;
};

// Throws ApiError for whatever is wrong with the body, and as RequestBudget does: the body, the
// prompts and what is known of the answer before the work are charged to `budget`. A constraint
// that has yet to be compiled is left to compile_constraint(), the adapter to read_adapter().
PreparedGeneration prepare_generation(RequestKind kind, std::string body,
                                      const ServiceContext& context, RequestBudget& budget);

// Compiles what the answer has to be, which may take seconds. Throws ApiError for what cannot be
// enforced.
void compile_constraint(PreparedGeneration& prepared, const ServiceContext& context);

// The weights of an adapter that a request names, which may take seconds to read. Throws ApiError
// 404 where it is not loaded any more, 500 where its folder cannot be read. What waits for its turn
// holds none, or the queue would fill the memory.
HeldLora read_adapter(const std::string& name, const ServiceContext& context);
// The same at once: nothing where there is something to read.
std::optional<HeldLora> find_adapter(const std::string& name, const ServiceContext& context);

// The ids of `text`, charged to `budget`, in which the spans `from_messages` become no special
// tokens unless parse_special_tokens is set. Throws ApiError 400 naming `param` for text that is no
// valid UTF-8, and where there is no tokenizer.
std::vector<int32_t> encode(const ServiceContext& context, const std::string& text,
                            std::span<const TextSpan> from_messages, bool add_special_tokens,
                            const std::string& param, RequestBudget& budget);

}  // namespace quire::server
