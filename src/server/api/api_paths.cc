#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/api/api_schemas.h"

// The calls of the API and their results.
namespace quire::server {
namespace {

Json reference(const std::string& schema) {
  return Json{{"$ref", "#/components/schemas/" + schema}};
}

Json json_content(const std::string& schema) {
  return Json{{"application/json", {{"schema", reference(schema)}}}};
}

Json answer(const char* description, Json content = nullptr) {
  Json response{{"description", description}};
  if (!content.is_null()) response["content"] = std::move(content);
  return response;
}

const char* describe(int status) {
  switch (status) {
    case 400:
      return "The request is malformed, or asks for what is not supported.";
    case 401:
      return "There is no API key, or none that is known.";
    case 403:
      return "The Host or Origin may not use this server, which has no API keys.";
    case 404:
      return "There is no such model, request or path.";
    case 405:
      return "The path knows another method.";
    case 410:
      return "The events that are missing are not kept any more.";
    case 413:
      return "The body is too large.";
    case 415:
      return "The body is encoded, or not declared as JSON.";
    case 429:
      return "The server is full, or the key at its limit; Retry-After says when to come back.";
    case 503:
      return "The server is starting, shutting down, or its engine has failed.";
    default:
      return "The server failed.";
  }
}

class Paths {
 public:
  explicit Paths(bool requires_key) : requires_key_(requires_key) {}

  Json& add(const std::string& path, const std::string& method, const char* id, const char* summary,
            Json ok) {
    Json& operation = paths_[path][method];
    operation["operationId"] = id;
    operation["summary"] = summary;
    operation["responses"]["200"] = std::move(ok);
    add_errors(operation, {403, 405, 500});
    return operation;
  }

  Json& add_protected(const std::string& path, const std::string& method, const char* id,
                      const char* summary, Json ok) {
    Json& operation = add(path, method, id, summary, std::move(ok));
    if (requires_key_) {
      operation["security"] = Json::array({{{"bearer", Json::array()}}});
      add_errors(operation, {401});
    }
    return operation;
  }

  Json& add_post(const std::string& path, const char* id, const char* summary,
                 const std::string& request, Json ok) {
    Json& operation = add_protected(path, "post", id, summary, std::move(ok));
    operation["requestBody"] = Json{{"required", true}, {"content", json_content(request)}};
    add_errors(operation, {400, 404, 413, 415, 429, 503});
    return operation;
  }

  static void add_errors(Json& operation, std::initializer_list<int> statuses) {
    for (const int status : statuses) {
      Json response = answer(describe(status), json_content("Error"));
      if (status == 429 || status == 503) {
        response["headers"]["Retry-After"] =
            Json{{"description", "In seconds."}, {"schema", {{"type", "integer"}, {"minimum", 0}}}};
      }
      operation["responses"][std::to_string(status)] = std::move(response);
    }
  }

  static void add_parameter(Json& operation, const char* name, const char* description) {
    operation["parameters"] = Json::array({{{"name", name},
                                            {"in", "path"},
                                            {"required", true},
                                            {"description", description},
                                            {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  }

  Json take() { return std::move(paths_); }

 private:
  bool requires_key_;
  Json paths_ = Json::object();
};

// OpenAPI 3.1 does not say how a stream is described; its tools take the schema for an event's.
Json event_schema(std::initializer_list<std::string> events) {
  Json parts = Json::array();
  for (const std::string& event : events) parts.push_back(reference(event));
  parts.push_back(reference("Error"));
  const Json part{{"contentMediaType", "application/json"},
                  {"contentSchema", {{"anyOf", std::move(parts)}}}};
  return Json{
      {"type", "object"},
      {"description", "Each event: a part of the answer, or the error that ended it; then [DONE]."},
      {"required", Json::array({"data"})},
      {"properties",
       {{"id", {{"type", "string"}, {"description", "Where stream_options.resumable is set."}}},
        {"data",
         {{"type", "string"}, {"anyOf", Json::array({Json{{"const", "[DONE]"}}, part})}}}}}};
}

Json generation_answer(const std::string& whole, const std::string& event) {
  Json content = json_content(whole);
  content["text/event-stream"]["schema"] = event_schema({event});
  return answer("The answer, or its stream.", std::move(content));
}

}  // namespace

Json api_paths(bool requires_key, bool loads_adapters) {
  Paths paths(requires_key);
  paths.add_post("/v1/chat/completions", "createChatCompletion", "Answers a conversation.",
                 "ChatCompletionRequest",
                 generation_answer("ChatCompletion", "ChatCompletionChunk"));
  paths.add_post("/v1/completions", "createCompletion", "Continues prompts.", "CompletionRequest",
                 generation_answer("Completion", "Completion"));
  paths.add_post("/tokenize", "tokenize", "The token ids of a text or a conversation.",
                 "TokenizeRequest", answer("The token ids.", json_content("TokenizeResponse")));
  paths.add_post("/detokenize", "detokenize", "The text of token ids.", "DetokenizeRequest",
                 answer("The text.", json_content("DetokenizeResponse")));

  paths.add_protected("/v1/models", "get", "listModels", "The models that are served.",
                      answer("The models.", json_content("ModelList")));
  Json& model = paths.add_protected("/v1/models/{model}", "get", "retrieveModel", "One model.",
                                    answer("The model.", json_content("Model")));
  Paths::add_parameter(model, "model", "A name of the model; it may hold slashes.");
  Paths::add_errors(model, {404});
  Json& request = paths.add_protected(
      "/v1/requests/{request_id}", "get", "explainRequest",
      "What became of a recent generation, or how far it is.",
      answer("The request's parameters, tokens and times.", json_content("RequestFacts")));
  Paths::add_parameter(request, "request_id",
                       "As the X-Request-Id header or the id of the answer gave it.");
  Paths::add_errors(request, {404});
  Json events;
  events["text/event-stream"]["schema"] = event_schema({"ChatCompletionChunk", "Completion"});
  Json& resumed =
      paths.add_protected("/v1/requests/{request_id}/events", "get", "resumeStream",
                          "Goes on with a stream that was asked for with stream_options.resumable.",
                          answer("The events behind the last one that came.", std::move(events)));
  Paths::add_parameter(resumed, "request_id",
                       "As the X-Request-Id header or the id of the answer gave it.");
  resumed["parameters"].push_back(
      Json{{"name", "Last-Event-ID"},
           {"in", "header"},
           {"description", "The id of the last event that came whole; without it, from the first."},
           {"schema", {{"type", "string"}, {"pattern", "^[0-9]+$"}}}});
  Paths::add_errors(resumed, {400, 404, 410});

  const Json text{{"text/plain", {{"schema", {{"type", "string"}}}}}};
  if (loads_adapters) {
    paths.add_post("/v1/load_lora_adapter", "loadLoraAdapter",
                   "Loads a LoRA adapter, which requests then name as their model.",
                   "LoadLoraAdapterRequest", answer("It is loaded.", text));
    paths.add_post("/v1/unload_lora_adapter", "unloadLoraAdapter",
                   "Unloads a LoRA adapter; requests that have it go on.",
                   "UnloadLoraAdapterRequest", answer("It is unloaded.", text));
  }
  paths.add_protected("/metrics", "get", "metrics", "Measurements in Prometheus' text format.",
                      answer("The measurements.", text));
  Paths::add_errors(
      paths.add("/ready", "get", "ready", "Whether the server takes requests.", answer("It does.")),
      {503});
  Paths::add_errors(paths.add("/health", "get", "health", "Whether the server and its engine live.",
                              answer("They do.")),
                    {503});
  paths.add("/version", "get", "version", "The version of the server.",
            answer("The version.", json_content("Version")));
  paths.add_protected(
      "/openapi.json", "get", "openapi", "This document.",
      answer("The document.", Json{{"application/json", {{"schema", {{"type", "object"}}}}}}));
  return paths.take();
}

}  // namespace quire::server
