#include <nlohmann/json.hpp>

#include "server/api/api_schemas.h"

// The responses of the server.
namespace quire::server {
namespace {

constexpr const char* kGenerationResponses = R"json({
  "ChatCompletion": {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
      "id": {"type": "string"},
      "object": {"const": "chat.completion"},
      "created": {"type": "integer"},
      "model": {"type": "string"},
      "choices": {"type": "array", "items": {
        "type": "object",
        "required": ["index", "message", "logprobs", "finish_reason"],
        "properties": {
          "index": {"type": "integer", "minimum": 0},
          "message": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
              "role": {"const": "assistant"},
              "content": {"type": ["string", "null"]},
              "reasoning_content": {"type": "string"},
              "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}}
            }
          },
          "logprobs": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/ChatLogprobs"}]},
          "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
          "stop_reason": {"$ref": "#/components/schemas/StopReason"},
          "steered_to_end": {"$ref": "#/components/schemas/SteeredToEnd"},
          "token_ids": {"$ref": "#/components/schemas/TokenIds"}
        }
      }},
      "usage": {"$ref": "#/components/schemas/Usage"},
      "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
      "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
    }
  },
  "ChatCompletionChunk": {
    "type": "object",
    "description": "The data of each event of a stream; the last one is [DONE].",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
      "id": {"type": "string"},
      "object": {"const": "chat.completion.chunk"},
      "created": {"type": "integer"},
      "model": {"type": "string"},
      "choices": {"type": "array", "items": {
        "type": "object",
        "required": ["index", "delta", "logprobs", "finish_reason"],
        "properties": {
          "index": {"type": "integer", "minimum": 0},
          "delta": {
            "type": "object",
            "properties": {
              "role": {"const": "assistant"},
              "content": {"type": "string"},
              "reasoning_content": {"type": "string"},
              "tool_calls": {"type": "array", "items": {
                "type": "object",
                "required": ["index", "function"],
                "properties": {
                  "index": {"type": "integer", "minimum": 0},
                  "id": {"type": "string"},
                  "type": {"const": "function"},
                  "function": {"type": "object", "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "string"}}}
                }
              }}
            }
          },
          "logprobs": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/ChatLogprobs"}]},
          "finish_reason": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/FinishReason"}]},
          "stop_reason": {"$ref": "#/components/schemas/StopReason"},
          "steered_to_end": {"$ref": "#/components/schemas/SteeredToEnd"},
          "token_ids": {"$ref": "#/components/schemas/TokenIds"}
        }
      }},
      "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"},
      "usage": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Usage"}]}
    }
  },
  "Completion": {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
      "id": {"type": "string"},
      "object": {"const": "text_completion"},
      "created": {"type": "integer"},
      "model": {"type": "string"},
      "choices": {"type": "array", "items": {
        "type": "object",
        "required": ["index", "text", "logprobs", "finish_reason"],
        "properties": {
          "index": {"type": "integer", "minimum": 0},
          "text": {"type": "string"},
          "logprobs": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/CompletionLogprobs"}]},
          "finish_reason": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/FinishReason"}]},
          "stop_reason": {"$ref": "#/components/schemas/StopReason"},
          "steered_to_end": {"$ref": "#/components/schemas/SteeredToEnd"},
          "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
          "token_ids": {"$ref": "#/components/schemas/TokenIds"},
          "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
        }
      }},
      "usage": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Usage"}]}
    }
  },
  "ToolCall": {
    "type": "object",
    "required": ["id", "type", "function"],
    "properties": {
      "id": {"type": "string"},
      "type": {"const": "function"},
      "function": {"type": "object", "required": ["name", "arguments"], "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "string", "description": "JSON as the model wrote it."}}}
    }
  },
  "ChatLogprobs": {
    "type": "object",
    "required": ["content"],
    "properties": {"content": {"type": ["array", "null"], "items": {
      "type": "object",
      "required": ["token", "logprob", "bytes", "top_logprobs"],
      "properties": {
        "token": {"type": "string"},
        "logprob": {"type": "number"},
        "bytes": {"$ref": "#/components/schemas/Bytes"},
        "top_logprobs": {"type": "array", "items": {
          "type": "object",
          "required": ["token", "logprob", "bytes"],
          "properties": {
            "token": {"type": "string"},
            "logprob": {"type": "number"},
            "bytes": {"$ref": "#/components/schemas/Bytes"}
          }
        }}
      }
    }}}
  },
  "CompletionLogprobs": {
    "type": "object",
    "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
    "properties": {
      "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}},
      "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
      "tokens": {"type": "array", "items": {"type": "string"}},
      "top_logprobs": {"type": "array", "items": {"type": ["object", "null"], "additionalProperties": {"type": "number"}}}
    }
  },
  "PromptLogprobs": {
    "type": ["array", "null"],
    "description": "For each token of the prompt, null for the first: logprobs by token id.",
    "items": {"type": ["object", "null"], "additionalProperties": {
      "type": "object",
      "required": ["logprob", "rank", "decoded_token"],
      "properties": {
        "logprob": {"type": "number"},
        "rank": {"type": "integer", "minimum": 1},
        "decoded_token": {"type": "string"}
      }
    }}
  },
  "Bytes": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0, "maximum": 255}},
  "TokenIds": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
  "FinishReason": {"type": "string", "enum": ["stop", "length", "tool_calls", "abort"]},
  "SteeredToEnd": {"const": true, "description": "Only where a constraint made the answer end in time for its limit on tokens: it is whole, and shorter than it might have been."},
  "StopReason": {"type": ["string", "integer", "null"], "description": "The stop string or token id that ended the output, or timeout."},
  "Usage": {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
      "prompt_tokens": {"type": "integer", "minimum": 0},
      "completion_tokens": {"type": "integer", "minimum": 0},
      "total_tokens": {"type": "integer", "minimum": 0},
      "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"], "properties": {
        "cached_tokens": {"type": "integer", "minimum": 0}}},
      "completion_tokens_details": {"type": "object", "required": ["reasoning_tokens"], "properties": {
        "reasoning_tokens": {"type": "integer", "minimum": 0},
        "accepted_prediction_tokens": {"type": "integer", "minimum": 0, "description": "With return_draft_usage: draft tokens that became part of the answer."},
        "rejected_prediction_tokens": {"type": "integer", "minimum": 0, "description": "With return_draft_usage: draft tokens that did not; they are not counted elsewhere."},
        "mean_acceptance_length": {"type": ["number", "null"], "minimum": 1, "description": "With return_draft_usage: tokens that a step with drafts brought on average; null where there was none."}}}
    }
  }
})json";

constexpr const char* kOtherResponses = R"json({
  "Error": {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {
      "type": "object",
      "required": ["message", "type", "param", "code"],
      "properties": {
        "message": {"type": "string"},
        "type": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]}
      }
    }}
  },
  "Model": {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
      "id": {"type": "string"},
      "object": {"const": "model"},
      "created": {"type": "integer"},
      "owned_by": {"type": "string"},
      "root": {"type": "string"},
      "parent": {"type": ["string", "null"]},
      "max_model_len": {"type": "integer", "minimum": 1},
      "vocab_size": {"type": "integer", "minimum": 1}
    }
  },
  "ModelList": {
    "type": "object",
    "required": ["object", "data"],
    "properties": {
      "object": {"const": "list"},
      "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}
    }
  },
  "TokenizeResponse": {
    "type": "object",
    "required": ["count", "max_model_len", "tokens"],
    "properties": {
      "count": {"type": "integer", "minimum": 0},
      "max_model_len": {"type": "integer", "minimum": 1},
      "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
      "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}
    }
  },
  "DetokenizeResponse": {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}}
  },
  "RequestFacts": {
    "type": "object",
    "required": ["id", "object", "state", "created_at", "first_token_at", "last_token_at", "method", "path", "model",
                 "client", "status", "stream", "finish_reason", "reject_reason", "client_disconnected", "error",
                 "parameters", "usage", "engine", "seconds", "at_arrival", "explanation"],
    "properties": {
      "id": {"type": "string"},
      "object": {"const": "request"},
      "state": {"enum": ["queued", "running", "finished"]},
      "created_at": {"type": "string", "description": "When it arrived, in UTC."},
      "first_token_at": {"type": ["string", "null"]},
      "last_token_at": {"type": ["string", "null"], "description": "The newest, while it runs."},
      "method": {"type": "string"},
      "path": {"type": "string"},
      "model": {"type": ["string", "null"]},
      "client": {"type": "string"},
      "status": {"type": ["integer", "null"], "description": "499: the client left before there was an answer."},
      "stream": {"type": "boolean"},
      "finish_reason": {"type": ["string", "null"]},
      "reject_reason": {"type": ["string", "null"]},
      "client_disconnected": {"type": "boolean"},
      "error": {"type": ["string", "null"]},
      "parameters": {
        "type": "object",
        "required": ["n", "max_tokens", "temperature", "top_p", "timeout"],
        "properties": {
          "n": {"type": "integer", "minimum": 1},
          "max_tokens": {"type": ["integer", "null"]},
          "temperature": {"type": ["number", "null"]},
          "top_p": {"type": ["number", "null"]},
          "timeout": {"type": ["number", "null"]}
        }
      },
      "usage": {
        "type": "object",
        "required": ["prompt_tokens", "cached_tokens", "completion_tokens"],
        "properties": {
          "prompt_tokens": {"type": "integer", "minimum": 0},
          "cached_tokens": {"type": "integer", "minimum": 0},
          "completion_tokens": {"type": "integer", "minimum": 0}
        }
      },
      "engine": {
        "type": "object",
        "required": ["steps", "preemptions", "draft_tokens", "accepted_draft_tokens"],
        "properties": {
          "steps": {"type": "integer", "minimum": 0, "description": "That computed tokens of it."},
          "preemptions": {"type": "integer", "minimum": 0,
                          "description": "Times that it gave its KV blocks up to others."},
          "draft_tokens": {"type": "integer", "minimum": 0},
          "accepted_draft_tokens": {"type": "integer", "minimum": 0}
        }
      },
      "seconds": {
        "type": "object",
        "required": ["queue", "prefill", "decode", "time_to_first_token", "total"],
        "properties": {
          "queue": {"type": "number"},
          "prefill": {"type": "number"},
          "decode": {"type": "number"},
          "time_to_first_token": {"type": "number"},
          "total": {"type": "number"}
        }
      },
      "at_arrival": {
        "type": "object",
        "required": ["running", "waiting"],
        "properties": {
          "running": {"type": "integer", "minimum": 0},
          "waiting": {"type": "integer", "minimum": 0}
        }
      },
      "explanation": {"type": "array", "items": {"type": "string"}}
    }
  },
  "Version": {
    "type": "object",
    "required": ["version"],
    "properties": {"version": {"type": "string"}}
  }
})json";

}  // namespace

Json response_schemas() {
  Json schemas = Json::parse(kGenerationResponses);
  const Json others = Json::parse(kOtherResponses);
  for (const auto& [name, schema] : others.items()) schemas[name] = schema;
  return schemas;
}

}  // namespace quire::server
