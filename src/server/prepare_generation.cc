#include "server/prepare_generation.h"

#include <fmt/format.h>
#include <chrono>

#include <algorithm>
#include <utility>

#include "parsers/tool_parser_prompt.h"
#include "quire/sampling_limits.h"
#include "server/api/render_prompt.h"
#include "server/api/request_fields.h"
#include "server/constrain_answer.h"

namespace quire::server {
namespace {

constexpr const char* kTooLong = "context_length_exceeded";

// The prompt's place in the body, for messages.
std::string param_of(const GenerationRequest& request, size_t index) {
  if (request.kind == RequestKind::kChat) return "messages";
  return request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", index);
}

void check_length(const GenerationRequest& request, size_t index, size_t num_tokens,
                  const ModelInfo& model) {
  const auto length = static_cast<int64_t>(num_tokens);
  const std::string param = param_of(request, index);
  if (length == 0)
    throw invalid_request("The prompt is empty; expected at least one token.", param);
  if (length >= model.max_model_len) {
    throw prompt_too_long(length, model.max_model_len, param);
  }
  const int64_t room = model.max_model_len - length;
  if (request.gave_max_tokens && *request.sampling.max_tokens > room) {
    throw invalid_request(
        fmt::format("The prompt has {} tokens and max_tokens is {}, {} in all; the model takes at "
                    "most {} of prompt and answer together.",
                    length, *request.sampling.max_tokens, length + *request.sampling.max_tokens,
                    model.max_model_len),
        "max_tokens", kTooLong);
  }
}

// A request gets its turn as a whole, so one larger than the engine would make all others wait.
void check_choices(const GenerationRequest& request, int64_t max_num_seqs) {
  constexpr auto kMaxN = static_cast<int64_t>(sampling_limit("n").maximum);
  const int64_t most = std::max(max_num_seqs, kMaxN);
  const auto num_choices = static_cast<int64_t>(request.num_choices());
  if (num_choices <= most) return;
  throw invalid_request(
      fmt::format("The request asks for {} answers ({} prompts, n is {}); expected at most {} in "
                  "all: split it.",
                  num_choices, request.num_prompts(), request.sampling.n, most),
      request.num_prompts() > 1 ? "prompt" : "n");
}

// The chat's prompt, and how its answer is parsed and constrained. The model has a chat template:
// parse_chat_request() refuses chats where it has none.
RenderedChat chat_prompt(PreparedGeneration& prepared, const ServiceContext& context) {
  GenerationRequest& request = prepared.request;
  OutputParserConfig& parser = prepared.parser;
  RenderedChat prompt = render_prompt(*context.chat_template, request);
  const bool forced =
      request.tool_choice == ToolChoice::kRequired || request.tool_choice == ToolChoice::kNamed;
  parser.reasoning = context.config.formats.reasoning;
  parser.parallel_tool_calls = request.parallel_tool_calls;
  if (request.tool_choice != ToolChoice::kNone) parser.tools = context.config.formats.tools;
  if (forced && parser.tools == ToolFormat::kNone) {
    throw invalid_request(
        "This model's template knows no tool calls, so none can be forced; expected \"none\" or "
        "\"auto\".",
        "tool_choice");
  }
  // A model that may think is made to where its answer is constrained: the constraint has to know
  // where it begins.
  if (forced) {
    prompt.text += thinking_closer(parser.reasoning, prompt.text);
  } else if (request.sampling.structured_output) {
    prompt.text += thinking_opener(parser.reasoning, prompt.text);
  }
  parser.thinking = thinking_at_end_of(prompt.text, parser.reasoning);
  if (parser.thinking == PromptThinking::kOpen) prepared.constraint_begins_after = kThinkingEnd;
  return prompt;
}

void constrain(PreparedGeneration& prepared, const AnswerSource& source) {
  prepared.constraint = constrain_answer(prepared.request, prepared.parser.tools,
                                         prepared.constraint_begins_after, source);
}

// `get`: the compiled constraint, or nothing where others have to go on.
template <typename Get>
void constrain_if(PreparedGeneration& prepared, const Get& get) {
  struct NotCompiled {};
  try {
    constrain(prepared, [&](const StructuredOutput& output) {
      const std::optional<std::shared_ptr<const void>> compiled = get(output);
      if (!compiled) throw NotCompiled();
      return *compiled;
    });
    prepared.needs_compiling = false;
  } catch (const NotCompiled&) {
    prepared.needs_compiling = true;
  }
}

// A constraint that somebody has had compiled waits for no other.
void constrain_if_known(PreparedGeneration& prepared, const ServiceContext& context) {
  constrain_if(prepared, [&](const StructuredOutput& output) {
    return context.engine.find_compiled(output);
  });
}

// What `get` gives, or the error of a request that names the adapter.
template <typename Get>
auto or_adapter_error(const std::string& name, const ModelInfo& model, const Get& get) {
  try {
    return get();
  } catch (const EngineFailure&) {
    throw;
  } catch (const Error& error) {
    if (!model.adapters->contains(name)) throw model_not_found(name);
    throw server_error(fmt::format("The LoRA adapter {} cannot be read: {}", name, error.what()));
  }
}

// What is known of the answer before the work.
void charge_answer(const PreparedGeneration& prepared, RequestBudget& budget) {
  const GenerationRequest& request = prepared.request;
  const auto& num_top = request.sampling.prompt_logprobs;
  if (!num_top) return;
  // Every one of n choices shows them: as prompt_logprobs, in the echo, or both.
  const int64_t times =
      (request.prompt_logprobs ? 1 : 0) + (request.echo && request.logprobs ? 1 : 0);
  if (!request.stream) {
    budget.count_response(times * request.sampling.n *
                          logprob_text_bytes(prepared.num_prompt_tokens(), *num_top));
  }
  budget.charge(logprob_bytes(prepared.num_prompt_tokens(), *num_top),
                "the log-probabilities of its prompt");
}

}  // namespace

int64_t PreparedGeneration::running_bytes() const {
  const int64_t num_tokens = num_prompt_tokens();
  const auto& num_top = request.sampling.prompt_logprobs;
  return token_id_bytes(num_tokens) + (num_top ? logprob_bytes(num_tokens, *num_top) : 0) +
         static_cast<int64_t>(prompts.size()) * constraint_bytes(request);
}

int64_t PreparedGeneration::num_prompt_tokens() const {
  int64_t total = 0;
  for (const auto& prompt : prompts) total += static_cast<int64_t>(prompt.size());
  return total;
}

std::vector<int32_t> encode(const ServiceContext& context, const std::string& text,
                            std::span<const TextSpan> from_messages, bool add_special_tokens,
                            const std::string& param, RequestBudget& budget) {
  if (context.tokenizer == nullptr) {
    throw invalid_request("This model has no tokenizer; give the prompt as token ids.", param);
  }
  const int64_t before = budget.charged();
  budget.charge(tokenizing_bytes(text), "the tokens of its prompt");
  try {
    if (context.config.parse_special_tokens) from_messages = {};
    std::vector<int32_t> ids = context.tokenizer->encode(text, from_messages, add_special_tokens);
    budget.lower_to(
        std::min(budget.charged(), before + token_id_bytes(static_cast<int64_t>(ids.size()))));
    return ids;
  } catch (const Error& error) {
    throw invalid_request(error.what(), param);
  }
}

PreparedGeneration prepare_generation(RequestKind kind, std::string body,
                                      const ServiceContext& context, RequestBudget& budget) {
  PreparedGeneration prepared;
  GenerationRequest& request = prepared.request;
  budget.charge_body(body);
  if (kind == RequestKind::kChat) {
    request = parse_chat_request(body, context.model, context.api);
    std::string().swap(body);
    const RenderedChat prompt = chat_prompt(prepared, context);
    prepared.prompts.push_back(encode(context, prompt.text, prompt.from_messages,
                                      request.add_special_tokens, "messages", budget));
  } else {
    request = parse_completion_request(body, context.model, context.api);
    std::string().swap(body);
    for (size_t i = 0; i < request.prompts.size(); ++i) {
      if (auto* text = std::get_if<std::string>(&request.prompts[i])) {
        prepared.prompts.push_back(
            encode(context, *text, {}, request.add_special_tokens, param_of(request, i), budget));
      } else {
        prepared.prompts.push_back(std::get<std::vector<int32_t>>(request.prompts[i]));
      }
    }
  }
  check_choices(request, context.config.admission.max_num_seqs);
  for (size_t i = 0; i < prepared.prompts.size(); ++i) {
    check_length(request, i, prepared.prompts[i].size(), context.model);
  }
  charge_answer(prepared, budget);
  constrain_if_known(prepared, context);
  return prepared;
}

std::optional<HeldLora> find_adapter(const std::string& name, const ServiceContext& context) {
  return or_adapter_error(name, context.model, [&] { return context.engine.find_lora(name); });
}

HeldLora read_adapter(const std::string& name, const ServiceContext& context) {
  return or_adapter_error(name, context.model, [&] { return context.engine.hold_lora(name); });
}

void compile_quickly(PreparedGeneration& prepared, const ServiceContext& context) {
  constexpr std::chrono::milliseconds kQuick{50};
  const auto end = std::chrono::steady_clock::now() + kQuick;
  constrain_if(prepared, [&](const StructuredOutput& output) {
    return context.engine.compile_by(output, end);
  });
}

void compile_constraint(PreparedGeneration& prepared, const ServiceContext& context) {
  constrain(prepared,
            [&](const StructuredOutput& output) { return context.engine.compile(output); });
  prepared.needs_compiling = false;
}

}  // namespace quire::server
