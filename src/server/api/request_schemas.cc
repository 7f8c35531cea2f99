#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "quire/sampling_limits.h"
#include "quire/sampling_params.h"
#include "server/api/api_schemas.h"

// The requests that a client may send. A text that begins with @ stands for a bound, a default or a
// list; see values_of() below.
namespace quire::server {
namespace {

// For both kinds of generation.
constexpr const char* kCommonProperties = R"json({
  "model": "@model",
  "n": {"type": ["integer", "null"], "minimum": "@n.minimum", "maximum": "@n.maximum", "default": "@n.default", "description": "Outputs for each prompt."},
  "temperature": {"type": ["number", "null"], "minimum": "@temperature.minimum", "maximum": "@temperature.maximum", "description": "0 takes the likeliest token. Left out: the model's own default, as for the other sampling parameters."},
  "top_p": {"type": ["number", "null"], "exclusiveMinimum": "@top_p.minimum", "maximum": "@top_p.maximum"},
  "top_k": {"type": ["integer", "null"], "minimum": "@top_k.minimum", "maximum": "@top_k.maximum", "description": "Sample among the k likeliest tokens; 0 or -1: all."},
  "min_p": {"type": ["number", "null"], "minimum": "@min_p.minimum", "maximum": "@min_p.maximum"},
  "repetition_penalty": {"type": ["number", "null"], "minimum": "@repetition_penalty.minimum", "maximum": "@repetition_penalty.maximum"},
  "presence_penalty": {"type": ["number", "null"], "minimum": "@presence_penalty.minimum", "maximum": "@presence_penalty.maximum"},
  "frequency_penalty": {"type": ["number", "null"], "minimum": "@frequency_penalty.minimum", "maximum": "@frequency_penalty.maximum"},
  "logit_bias": {
    "type": ["object", "null"], "maxProperties": 1024,
    "propertyNames": {"type": "string", "maxLength": 10, "pattern": "@token_id_pattern", "x-error": "The keys of logit_bias must be token ids of the model's vocabulary."},
    "additionalProperties": {"type": "number", "minimum": "@logit_bias.minimum", "maximum": "@logit_bias.maximum"},
    "description": "What is added to the logit of each token, by its id."
  },
  "max_tokens": {"type": ["integer", "null"], "minimum": "@max_tokens.minimum", "maximum": "@max_output_tokens", "description": "Tokens to generate; with the prompt's at most max_model_len."},
  "min_tokens": {"type": ["integer", "null"], "minimum": "@min_tokens.minimum", "maximum": "@max_output_tokens", "description": "No end before so many tokens; at most max_tokens."},
  "stop": {"anyOf": [
    {"type": "null"},
    {"$ref": "#/components/schemas/StopString"},
    {"type": "array", "maxItems": "@max_stop_strings", "items": {"$ref": "#/components/schemas/StopString"}}
  ]},
  "stop_token_ids": {"type": ["array", "null"], "maxItems": "@max_stop_token_ids", "items": {"$ref": "#/components/schemas/TokenId"}},
  "include_stop_str_in_output": {"type": ["boolean", "null"], "default": "@include_stop_str_in_output.default"},
  "ignore_eos": {"type": ["boolean", "null"], "default": "@ignore_eos.default"},
  "skip_special_tokens": {"type": ["boolean", "null"], "default": "@skip_special_tokens.default"},
  "spaces_between_special_tokens": {"type": ["boolean", "null"], "description": "Changes nothing: no space is ever added."},
  "seed": {"type": ["integer", "null"], "minimum": -9223372036854775807, "maximum": 9223372036854775807},
  "prompt_logprobs": {"type": ["integer", "null"], "minimum": "@prompt_logprobs.minimum", "maximum": "@prompt_logprobs.maximum", "description": "So many of the likeliest tokens at each position of the prompt. Not with stream."},
  "stream": {"type": ["boolean", "null"], "default": false},
  "stream_options": {
    "type": ["object", "null"],
    "properties": {
      "include_usage": {"type": ["boolean", "null"], "default": false},
      "continuous_usage_stats": {"type": ["boolean", "null"], "default": false, "description": "The usage so far in every event."},
      "resumable": {"type": ["boolean", "null"], "default": false, "description": "Events have ids, and a client that lost its connection goes on at /v1/requests/{request_id}/events."},
      "include_obfuscation": {"type": ["boolean", "null"], "description": "Changes nothing: no padding is ever sent."}
    }
  },
  "echo": {"type": ["boolean", "null"], "default": false},
  "add_special_tokens": {"type": ["boolean", "null"], "description": "Whether the tokenizer adds its special tokens to the prompt; default: true for text, false for messages."},
  "return_token_ids": {"type": ["boolean", "null"], "default": false},
  "return_tokens_as_token_ids": {"type": ["boolean", "null"], "default": false, "description": "In logprobs, tokens as token_id:ID instead of their text."},
  "return_draft_usage": {"type": ["boolean", "null"], "default": false, "description": "In usage.completion_tokens_details: how many drafts of speculative decoding were kept."},
  "priority": {"type": ["integer", "null"], "minimum": -2147483648, "maximum": 2147483647, "default": 0, "description": "Lower goes first."},
  "cache_salt": {"type": ["string", "null"], "minLength": 1, "maxLength": 1024, "description": "Cached prefixes are shared only with requests of the same salt."},
  "timeout": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 604800, "description": "Seconds from arrival after which the request ends with what it has: finish_reason length, stop_reason timeout."},
  "request_id": {"type": ["string", "null"], "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
  "user": {"type": ["string", "null"], "maxLength": 4096},
  "store": {"type": ["boolean", "null"], "description": "Changes nothing, as metadata, service_tier, prompt_cache_key and safety_identifier."},
  "metadata": {"type": ["object", "null"]},
  "service_tier": {"type": ["string", "null"]},
  "prompt_cache_key": {"type": ["string", "null"]},
  "safety_identifier": {"type": ["string", "null"]},
  "response_format": {"$ref": "#/components/schemas/ResponseFormat"},
  "structured_outputs": {"$ref": "#/components/schemas/StructuredOutputs"},
  "guided_json": {"type": ["object", "string", "null"], "deprecated": true, "description": "structured_outputs.json by its older name, as the others that begin with guided_."},
  "guided_regex": {"type": ["string", "null"], "deprecated": true},
  "guided_choice": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string"}, "deprecated": true},
  "guided_grammar": {"type": ["string", "null"], "deprecated": true},
  "guided_json_object": {"type": ["boolean", "null"], "deprecated": true},
  "guided_structural_tag": {"$ref": "#/components/schemas/StructuralTag"},
  "json_schema": {"type": ["object", "string", "null"], "description": "structured_outputs.json by llama.cpp's and SGLang's name."},
  "grammar": {"type": ["string", "null"], "description": "structured_outputs.grammar by llama.cpp's name; an empty one changes nothing."},
  "ebnf": {"type": ["string", "null"], "description": "structured_outputs.grammar by SGLang's name."},
  "regex": {"type": ["string", "null"], "description": "structured_outputs.regex by SGLang's name."},
  "choice": {"type": "null", "x-error": "choice is not supported here; give it in structured_outputs."},
  "structured_output": {"type": "null", "x-error": "structured_output is not supported; use structured_outputs."},
  "guided_decoding": {"type": "null", "x-error": "guided_decoding is not supported; use structured_outputs."},
  "guided_decoding_backend": {"type": ["string", "null"], "deprecated": true, "description": "Changes nothing: there is one."},
  "guided_whitespace_pattern": {"type": "null", "x-error": "guided_whitespace_pattern is not supported; leave it out."},
  "structural_tag": {"type": "null", "x-error": "structural_tag is not supported here; give it in structured_outputs."},
  "use_beam_search": {"enum": [false, null], "x-error": "use_beam_search is not supported; leave it out."},
  "logits_processors": {"type": "null", "x-error": "logits_processors is not supported; leave it out."},
  "allowed_token_ids": {"type": "null", "x-error": "allowed_token_ids is not supported; leave it out, or use logit_bias."},
  "bad_words": {"type": ["array", "null"], "maxItems": 0, "x-error": "bad_words is not supported; leave it out, or use logit_bias."},
  "truncate_prompt_tokens": {"type": "null", "x-error": "truncate_prompt_tokens is not supported; shorten the prompt instead."},
  "prompt_embeds": {"type": "null", "x-error": "prompt_embeds is not supported: give the prompt as text or as token ids."},
  "thinking_token_budget": {"type": "null", "x-error": "thinking_token_budget is not supported; leave it out."},
  "vllm_xargs": {"type": "null", "x-error": "vllm_xargs is not supported; leave it out."},
  "length_penalty": {"type": ["number", "null"], "description": "Changes nothing: it is of beam search, which is not supported."},
  "kv_transfer_params": {"type": "null", "x-error": "kv_transfer_params is not supported; leave it out."}
})json";

constexpr const char* kCommonRules = R"json([
  {"anyOf": [
     {"properties": {"stream_options": {"type": "null"}}},
     {"required": ["stream"], "properties": {"stream": {"const": true}}}],
   "x-error": "stream_options goes only with stream: true.", "x-param": "stream_options"},
  {"anyOf": [
     {"properties": {"prompt_logprobs": {"type": "null"}}},
     {"properties": {"stream": {"enum": [false, null]}}}],
   "x-error": "prompt_logprobs is not given with stream: true.", "x-param": "prompt_logprobs"}
])json";

constexpr const char* kCompletionRequest = R"json({
  "type": "object",
  "required": ["prompt"],
  "properties": {
    "prompt": {
      "anyOf": [
        {"$ref": "#/components/schemas/PromptText"},
        {"type": "array", "minItems": 1, "maxItems": "@max_prompts", "items": {"$ref": "#/components/schemas/PromptText"}},
        {"$ref": "#/components/schemas/PromptTokenIds"},
        {"type": "array", "minItems": 1, "maxItems": "@max_prompts", "items": {"$ref": "#/components/schemas/PromptTokenIds"}}
      ],
      "description": "A text, token ids, or a list of either."
    },
    "max_tokens": {"type": ["integer", "null"], "minimum": "@max_tokens.minimum", "maximum": "@max_output_tokens", "default": "@max_tokens.default", "description": "Tokens to generate; with the prompt's at most max_model_len. Left out: the default, or fewer where the context ends."},
    "best_of": {"type": ["integer", "null"], "minimum": "@n.minimum", "maximum": "@n.maximum", "deprecated": true, "description": "Accepted where it equals n: outputs are not ranked."},
    "logprobs": {"type": ["integer", "null"], "minimum": "@logprobs.minimum", "maximum": "@logprobs.maximum", "description": "So many of the likeliest tokens at each position."},
    "suffix": {"type": ["string", "null"], "maxLength": 0, "x-error": "suffix is not supported: the model continues a prompt and cannot fill in before a given end."}
  }
})json";

constexpr const char* kChatRequest = R"json({
  "type": "object",
  "required": ["messages"],
  "properties": {
    "messages": {"$ref": "#/components/schemas/Messages"},
    "max_tokens": {"type": ["integer", "null"], "minimum": "@max_tokens.minimum", "maximum": "@max_output_tokens", "deprecated": true, "description": "max_completion_tokens counts where both are given. Left out: as many as fit into the model's context."},
    "max_completion_tokens": {"type": ["integer", "null"], "minimum": "@max_tokens.minimum", "maximum": "@max_output_tokens", "description": "Tokens to generate, reasoning included. Left out: as many as fit into the model's context."},
    "logprobs": {"type": ["boolean", "null"], "default": false},
    "top_logprobs": {"type": ["integer", "null"], "minimum": "@logprobs.minimum", "maximum": "@logprobs.maximum"},
    "tools": {"$ref": "#/components/schemas/Tools"},
    "tool_choice": {"anyOf": [
      {"type": ["string", "null"], "enum": ["none", "auto", "required", null]},
      {"type": "object", "required": ["type", "function"], "properties": {
        "type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 128}}}}}
    ], "description": "Default: auto where tools are given."},
    "parallel_tool_calls": {"type": ["boolean", "null"], "default": true},
    "reasoning_effort": {"type": ["string", "null"], "enum": ["none", "minimal", "low", "medium", "high", "xhigh", null], "description": "Given to the chat template; none also sets its enable_thinking to false."},
    "include_reasoning": {"type": ["boolean", "null"], "default": true, "description": "Whether the answer has reasoning_content."},
    "add_generation_prompt": {"$ref": "#/components/schemas/AddGenerationPrompt"},
    "continue_final_message": {"$ref": "#/components/schemas/ContinueFinalMessage"},
    "chat_template_kwargs": {"$ref": "#/components/schemas/ChatTemplateKwargs"},
    "verbosity": {"type": ["string", "null"], "description": "Changes nothing."},
    "modalities": {"type": ["array", "null"], "items": {"const": "text", "x-error": "modalities other than text are not supported."}},
    "audio": {"type": "null", "x-error": "audio is not supported; leave it out."},
    "prediction": {"type": "null", "x-error": "prediction is not supported; leave it out."},
    "web_search_options": {"type": "null", "x-error": "web_search_options is not supported; leave it out."},
    "functions": {"type": "null", "x-error": "functions is not supported; use tools."},
    "function_call": {"type": "null", "x-error": "function_call is not supported; use tool_choice."},
    "documents": {"type": "null", "x-error": "documents is not supported; put them into the messages."},
    "chat_template": {"type": "null", "x-error": "chat_template is not supported in a request: the model's own template is used."},
    "mm_processor_kwargs": {"type": "null", "x-error": "mm_processor_kwargs is not supported; leave it out."}
  },
  "allOf": [
    {"anyOf": [
       {"properties": {"top_logprobs": {"enum": [0, null]}}},
       {"required": ["logprobs"], "properties": {"logprobs": {"const": true}}}],
     "x-error": "top_logprobs goes only with logprobs: true.", "x-param": "top_logprobs"},
    {"anyOf": [
       {"properties": {"tool_choice": {"enum": ["none", "auto", null]}}},
       {"required": ["tools"], "properties": {"tools": {"type": "array", "minItems": 1}}}],
     "x-error": "tool_choice asks for a call, but there are no tools.", "x-param": "tool_choice"},
    {"$ref": "#/components/schemas/FinalMessageRule"}
  ]
})json";

constexpr const char* kTokenizeRequest = R"json({
  "type": "object",
  "properties": {
    "model": "@model",
    "prompt": {"type": "string"},
    "messages": {"$ref": "#/components/schemas/Messages"},
    "tools": {"$ref": "#/components/schemas/Tools"},
    "add_generation_prompt": {"$ref": "#/components/schemas/AddGenerationPrompt"},
    "continue_final_message": {"$ref": "#/components/schemas/ContinueFinalMessage"},
    "chat_template_kwargs": {"$ref": "#/components/schemas/ChatTemplateKwargs"},
    "chat_template": {"type": "null", "x-error": "chat_template is not supported in a request: the model's own template is used."},
    "add_special_tokens": {"type": ["boolean", "null"], "description": "Default: true for a prompt, false for messages."},
    "return_token_strs": {"type": ["boolean", "null"], "default": false}
  },
  "allOf": [
    {"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
     "x-error": "One of prompt and messages is expected, and not both.", "x-param": "prompt"},
    {"$ref": "#/components/schemas/FinalMessageRule"}
  ]
})json";

constexpr const char* kParts = R"json({
  "TokenId": {"type": "integer", "minimum": 0, "maximum": "@last_token_id"},
  "PromptText": {"type": "string", "minLength": 1},
  "PromptTokenIds": {"type": "array", "minItems": 1, "maxItems": "@max_prompt_tokens", "items": {"$ref": "#/components/schemas/TokenId"}},
  "StopString": {"type": "string", "minLength": 1, "maxLength": "@max_stop_characters"},
  "AddGenerationPrompt": {"type": ["boolean", "null"], "description": "Whether the prompt ends with the header of the answer; default: true, unless continue_final_message is true."},
  "ContinueFinalMessage": {"type": ["boolean", "null"], "default": false, "description": "The answer goes on from the last message instead of being a new one."},
  "FinalMessageRule": {
    "not": {"required": ["add_generation_prompt", "continue_final_message"], "properties": {"add_generation_prompt": {"const": true}, "continue_final_message": {"const": true}}},
    "x-error": "add_generation_prompt and continue_final_message cannot both be true.", "x-param": "continue_final_message"
  },
  "ChatTemplateKwargs": {
    "type": ["object", "null"], "maxProperties": 64,
    "propertyNames": {
      "not": {"enum": ["messages", "tools", "functions", "add_generation_prompt", "continue_final_message", "chat_template", "conversation", "tokenizer", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"]},
      "x-error": "chat_template_kwargs may not set what the request itself sets (messages, tools, add_generation_prompt, ...)."
    },
    "description": "More variables for the chat template, e.g. {\"enable_thinking\": false}."
  },
  "Messages": {"type": "array", "minItems": 1, "maxItems": 65536, "items": {"$ref": "#/components/schemas/Message"}},
  "Message": {
    "type": "object",
    "required": ["role"],
    "properties": {
      "role": {"type": "string", "minLength": 1, "maxLength": 64, "description": "system, developer (taken as system), user, assistant, tool, or what the model's template knows."},
      "content": {"anyOf": [
        {"type": ["string", "null"]},
        {"type": "array", "items": {"$ref": "#/components/schemas/ContentPart"}}]},
      "name": {"type": ["string", "null"]},
      "reasoning_content": {"type": ["string", "null"]},
      "reasoning": {"type": ["string", "null"]},
      "refusal": {"type": ["string", "null"]},
      "audio": {"type": "null", "x-error": "audio is not supported; send text."},
      "function_call": {"type": "null", "x-error": "function_call is not supported; use tool_calls."},
      "tool_call_id": {"type": ["string", "null"]},
      "tool_calls": {"type": ["array", "null"], "maxItems": 1024, "items": {"$ref": "#/components/schemas/ToolCallGiven"}}
    }
  },
  "ContentPart": {"anyOf": [
    {"type": "object", "required": ["type", "text"], "properties": {
      "type": {"const": "text", "x-error": "Only text is supported as content: parts of type text (not images, audio or files)."},
      "text": {"type": "string"}}},
    {"type": "object", "required": ["type", "refusal"], "properties": {
      "type": {"const": "refusal", "x-error": "Only text is supported as content: parts of type text (not images, audio or files)."},
      "refusal": {"type": "string"}}}
  ]},
  "ToolCallGiven": {
    "type": "object", "required": ["function"],
    "properties": {
      "id": {"type": ["string", "null"]},
      "type": {"const": "function", "x-error": "Only tool calls of type function are supported."},
      "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"},
        "arguments": {"type": ["string", "object", "null"]}}}
    }
  },
  "Tools": {"type": ["array", "null"], "maxItems": 1024, "items": {"$ref": "#/components/schemas/Tool"}},
  "Tool": {
    "type": "object", "required": ["type", "function"],
    "properties": {
      "type": {"const": "function", "x-error": "Only tools of type function are supported."},
      "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 128},
        "description": {"type": ["string", "null"]},
        "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"], "description": "Arguments always follow the schema of parameters, unless this is false."}}}
    }
  },
  "ResponseFormat": {
    "type": ["object", "null"], "required": ["type"],
    "properties": {
      "type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]},
      "json_schema": {"type": ["object", "null"], "required": ["name", "schema"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 128},
        "description": {"type": ["string", "null"]},
        "schema": {"type": "object", "description": "A JSON Schema of drafts 4 to 2020-12."},
        "strict": {"type": ["boolean", "null"], "description": "Changes nothing: an answer always follows the schema."}}},
      "structures": {"$ref": "#/components/schemas/TagStructures"},
      "triggers": {"$ref": "#/components/schemas/TagTriggers"},
      "format": {"type": "null", "x-error": "response_format.format is not supported: give structures and triggers."},
      "schema": {"type": "null", "x-error": "response_format.schema goes with no json_object: give the type json_schema."}
    },
    "allOf": [
      {"anyOf": [
         {"properties": {"type": {"enum": ["text", "json_object", "structural_tag"]}}},
         {"required": ["json_schema"], "properties": {"json_schema": {"type": "object"}}}],
       "x-error": "response_format.json_schema is missing.", "x-param": "json_schema"},
      {"anyOf": [
         {"properties": {"type": {"enum": ["text", "json_object", "json_schema"]}}},
         {"required": ["structures", "triggers"], "properties": {"structures": {"type": "array"}, "triggers": {"type": "array"}}}],
       "x-error": "response_format needs structures and triggers where its type is structural_tag.", "x-param": "structures"}
    ],
    "description": "What the answer is: any text, a JSON object, JSON that a schema describes, or text in which JSON stands between tags. What cannot be enforced is refused."
  },
  "TagStructures": {"type": "array", "minItems": 1, "items": {
    "type": "object", "required": ["begin", "end"], "properties": {
      "begin": {"type": "string", "description": "Begins with one of the triggers."},
      "schema": {"type": ["object", "null"], "description": "Of the JSON between begin and end; left out: any JSON."},
      "end": {"type": "string"}}}},
  "StructuralTag": {"type": ["object", "string", "null"], "required": ["structures", "triggers"], "properties": {
    "structures": {"$ref": "#/components/schemas/TagStructures"},
    "triggers": {"$ref": "#/components/schemas/TagTriggers"},
    "format": {"type": "null", "x-error": "structural_tag.format is not supported: give structures and triggers."}}},
  "TagTriggers": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}, "description": "Free text that has one of these goes on with a structure that begins with it."},
  "StructuredOutputs": {
    "type": ["object", "null"],
    "properties": {
      "json": {"type": ["object", "string", "null"], "description": "A JSON Schema, or a string that holds one."},
      "regex": {"type": ["string", "null"], "description": "The whole answer matches."},
      "choice": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string"}},
      "grammar": {"type": ["string", "null"], "description": "A context-free grammar."},
      "json_object": {"enum": [true, null]},
      "structural_tag": {"$ref": "#/components/schemas/StructuralTag"},
      "disable_fallback": {"type": ["boolean", "null"], "description": "Changes nothing: there is nothing to fall back to."},
      "disable_any_whitespace": {"type": ["boolean", "null"], "default": false, "description": "JSON has no white space between its tokens."},
      "disable_additional_properties": {"enum": [false, null], "x-error": "structured_outputs.disable_additional_properties is not supported: the schema says what is allowed."},
      "whitespace_pattern": {"type": "null", "x-error": "structured_outputs.whitespace_pattern is not supported; leave it out."}
    },
    "additionalProperties": false,
    "description": "What the answer is: exactly one of json, regex, choice, grammar, json_object and structural_tag, and not beside another constraint."
  },
  "LoadLoraAdapterRequest": {
    "type": "object", "required": ["lora_name", "lora_path"],
    "properties": {
      "lora_name": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "@printable", "description": "The model that requests name to have it."},
      "lora_path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "A folder on the server, as PEFT has saved it; where the server has --lora-dir, one below that."},
      "load_inplace": {"type": ["boolean", "null"], "default": false, "description": "Take the place of a loaded adapter with this name, for requests that come afterwards."}
    }
  },
  "UnloadLoraAdapterRequest": {
    "type": "object", "required": ["lora_name"],
    "properties": {
      "lora_name": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "@printable"},
      "lora_int_id": {"type": ["integer", "null"], "description": "Changes nothing: adapters go by their names."}
    }
  },
  "DetokenizeRequest": {
    "type": "object", "required": ["tokens"],
    "properties": {
      "model": "@model",
      "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}}
    }
  }
})json";

// `first`, and the members of `second` that it lacks.
void add_members(Json& first, const Json& second) {
  for (const auto& [name, value] : second.items()) {
    if (!first.contains(name)) first[name] = value;
  }
}

Json generation_request(const char* own) {
  Json schema = Json::parse(own);
  add_members(schema["properties"], Json::parse(kCommonProperties));
  for (Json& rule : Json::parse(kCommonRules)) schema["allOf"].push_back(std::move(rule));
  return schema;
}

// A whole number without a fraction, as people write it.
Json number(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

// "@n.minimum", "@n.default" and so on.
void add_sampling_values(std::map<std::string, Json>& values) {
  for (const SamplingLimit& limit : kSamplingLimits) {
    const std::string field = "@" + std::string(limit.field);
    values[field + ".minimum"] = number(limit.minimum);
    if (std::isfinite(limit.maximum)) values[field + ".maximum"] = number(limit.maximum);
  }
  const SamplingParams defaults;
  values["@n.default"] = defaults.n;
  values["@max_tokens.default"] = *defaults.max_tokens;
  values["@include_stop_str_in_output.default"] = defaults.include_stop_str_in_output;
  values["@ignore_eos.default"] = defaults.ignore_eos;
  values["@skip_special_tokens.default"] = defaults.skip_special_tokens;
  values["@max_stop_strings"] = kMaxStopStrings;
  // A character takes up to four bytes.
  values["@max_stop_characters"] = kMaxStopStringBytes / 4;
  values["@max_stop_token_ids"] = kMaxStopTokenIds;
}

// The names are known only where adapters neither come nor go.
Json model_field(const ModelInfo& model) {
  const char* about = "The served model, or one of its other names; left out: the served model.";
  if (model.adapters != nullptr) {
    return Json{
        {"type", Json::array({"string", "null"})},
        {"description", std::string(about) + " Or an adapter, by its name or as "
                                             "\"MODEL:ADAPTER\"; GET /v1/models lists them."}};
  }
  Json names = Json::array({model.id});
  for (const std::string& alias : model.aliases) names.push_back(alias);
  names.push_back(nullptr);
  return Json{{"enum", std::move(names)}, {"description", about}};
}

std::map<std::string, Json> values_of(const ModelInfo& model) {
  std::map<std::string, Json> values = {{"@model", model_field(model)},
                                        {"@last_token_id", model.vocab_size - 1},
                                        {"@token_id_pattern", pattern_up_to(model.vocab_size - 1)},
                                        {"@max_prompt_tokens", model.max_model_len - 1},
                                        {"@max_output_tokens", model.max_model_len - 1},
                                        {"@max_prompts", kMaxPrompts},
                                        {"@printable", "^[^\\u0000-\\u001f\\u007f]+$"}};
  add_sampling_values(values);
  return values;
}

void fill_in(Json& schema, const std::map<std::string, Json>& values) {
  if (schema.is_string()) {
    const auto found = values.find(schema.get_ref<const std::string&>());
    if (found != values.end()) schema = found->second;
  } else if (schema.is_structured()) {
    for (Json& part : schema) fill_in(part, values);
  }
}

}  // namespace

std::string pattern_up_to(int64_t last) {
  const std::string digits = std::to_string(last);
  // Shorter numbers; then, for each digit, those that are the same up to it and less there.
  std::string pattern = "^(0";
  if (digits.size() > 1) pattern += "|[1-9][0-9]{0," + std::to_string(digits.size() - 2) + "}";
  for (size_t i = 0; i < digits.size(); ++i) {
    const char least = i == 0 ? '1' : '0';
    if (digits[i] <= least) continue;
    const size_t rest = digits.size() - i - 1;
    pattern +=
        "|" + digits.substr(0, i) + "[" + least + "-" + static_cast<char>(digits[i] - 1) + "]";
    if (rest > 0) pattern += "[0-9]{" + std::to_string(rest) + "}";
  }
  return pattern + "|" + digits + ")$";
}

Json request_schemas(const ModelInfo& model) {
  Json schemas;
  schemas["ChatCompletionRequest"] = generation_request(kChatRequest);
  schemas["CompletionRequest"] = generation_request(kCompletionRequest);
  schemas["TokenizeRequest"] = Json::parse(kTokenizeRequest);
  add_members(schemas, Json::parse(kParts));
  fill_in(schemas, values_of(model));
  return schemas;
}

}  // namespace quire::server
