#include "server/constrain_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/raw_json.h"
#include "parsers/tool_call_constraint.h"

namespace quire::server {
namespace {

using Kind = StructuredOutput::Kind;

constexpr const char* kAnyObject = R"({"type":"object"})";
// OpenAI: a function without parameters has an empty list of them.
constexpr const char* kEmptyObject = R"({"type":"object","additionalProperties":false})";

struct Function {
  CallableFunction callable;
  std::string field;  // of its schema
  bool must_follow;   // where the schema cannot be enforced, there is no answer
};

// Arguments are an object, whether the schema says so or not. `written` is its text.
std::string schema_of_object(const Json& parameters, std::string written) {
  const auto type = parameters.find("type");
  if (type == parameters.end()) {
    written.insert(1, parameters.empty() ? R"("type":"object")" : R"("type":"object",)");
  } else if (type->is_array() && type->size() > 1) {
    const std::string_view types = RawJson(written).find("type").text();
    const auto at = static_cast<size_t>(types.data() - written.data());
    written.replace(at, types.size(), R"("object")");
  }
  return written;
}

Function function_of(const Json& tool, const std::string& written, size_t index, bool forced) {
  const Json& function = tool.at("function");
  const auto strict = function.find("strict");
  const bool says = strict != function.end() && strict->is_boolean();
  const bool free = says && !strict->get<bool>();
  Function result{.callable = {.name = function.at("name").get<std::string>(),
                               .arguments_schema = kEmptyObject},
                  .field = fmt::format("tools[{}].function.parameters", index),
                  .must_follow = !free && (says || forced)};
  if (free) {
    result.callable.arguments_schema = kAnyObject;
  } else if (!written.empty()) {
    result.callable.arguments_schema = schema_of_object(function.at("parameters"), written);
  }
  return result;
}

// The functions that may be called.
std::vector<Function> functions_of(const GenerationRequest& request) {
  const bool forced = request.tool_choice != ToolChoice::kAuto;
  const Json& tools = request.chat.tools;
  std::vector<Function> functions;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (request.tool_choice == ToolChoice::kNamed &&
        !is_string(tools[i].at("function").at("name"), request.tool_name)) {
      continue;
    }
    functions.push_back(function_of(tools[i], request.tool_parameters.at(i), i, forced));
  }
  return functions;
}

ApiError not_enforceable(const std::string& field, const std::string& why) {
  return invalid_request(fmt::format("{} cannot be enforced: {}.", field, why), field,
                         "invalid_value");
}

// The beginning of the engine's sentences; no field of the API has that name.
constexpr std::string_view kEngineField = "structured_output: ";

std::string sentence_of(const Error& error) {
  std::string_view sentence = error.what();
  if (sentence.starts_with(kEngineField)) sentence.remove_prefix(kEngineField.size());
  if (sentence.ends_with('.')) sentence.remove_suffix(1);  // it goes on in another
  return std::string(sentence);
}

struct Compiled {
  std::shared_ptr<const void> holder{};
  std::optional<std::string> problem{};  // why it cannot be enforced
};

Compiled compile(const StructuredOutput& constraint, const AnswerSource& source) {
  try {
    return {.holder = source(constraint)};
  } catch (const EngineFailure&) {
    throw;
  } catch (const Error& error) {
    return {.problem = sentence_of(error)};
  }
}

// The constraint on an answer without forced calls: free text with calls in it, or one call or
// JSON.
StructuredOutput unforced(const GenerationRequest& request, ToolFormat format,
                          std::span<const CallableFunction> functions) {
  if (!request.sampling.structured_output) {
    return optional_calls(format, functions, request.parallel_tool_calls);
  }
  const StructuredOutput& answer = *request.sampling.structured_output;
  return call_or_json(format, functions,
                      answer.kind == Kind::kJsonSchema ? answer.text : kAnyObject);
}

StructuredOutput with_calls(const GenerationRequest& request, ToolFormat format,
                            const std::vector<Function>& functions) {
  std::vector<CallableFunction> callable;
  for (const Function& function : functions) callable.push_back(function.callable);
  if (request.tool_choice == ToolChoice::kAuto) return unforced(request, format, callable);
  const bool parallel = request.parallel_tool_calls && request.tool_choice == ToolChoice::kRequired;
  return forced_calls(format, callable, parallel);
}

// Drops the schemas that keep the whole from being compiled, because of `problem`, with a warning.
std::vector<std::string> free_functions(std::vector<Function>& functions,
                                        const AnswerSource& source, const std::string& problem) {
  // A single schema may take as long as all together.
  constexpr std::chrono::seconds kMost{2};
  const auto end = std::chrono::steady_clock::now() + kMost;
  std::vector<std::string> warnings;
  for (Function& function : functions) {
    if (std::chrono::steady_clock::now() > end) throw not_enforceable("tools", problem);
    StructuredOutput schema{.kind = Kind::kJsonSchema, .text = function.callable.arguments_schema};
    const std::optional<std::string> own = compile(schema, source).problem;
    if (!own) continue;
    if (function.must_follow) throw not_enforceable(function.field, *own);
    warnings.push_back(
        fmt::format("{} cannot be enforced, so that the arguments of {} are any object: {}",
                    function.field, Json(function.callable.name).dump(), *own));
    function.callable.arguments_schema = kAnyObject;
  }
  if (warnings.empty()) throw not_enforceable("tools", problem);
  return warnings;
}

std::shared_ptr<const void> constrain_calls(GenerationRequest& request, ToolFormat format,
                                            const std::string& begins_after,
                                            const AnswerSource& source) {
  const std::optional<StructuredOutput>& answer = request.sampling.structured_output;
  if (answer && answer->kind != Kind::kJsonSchema && answer->kind != Kind::kJsonObject) {
    throw invalid_request(
        fmt::format("{} does not go with tools: an answer is either a call or follows it. Expected "
                    "a response_format of JSON, or tool_choice \"none\".",
                    request.constraint_field),
        request.constraint_field, "invalid_value");
  }
  std::vector<Function> functions = functions_of(request);
  const auto constraint = [&] {
    StructuredOutput whole = with_calls(request, format, functions);
    whole.begins_after = begins_after;
    whole.disable_any_whitespace = answer && answer->disable_any_whitespace;
    return whole;
  };
  Compiled compiled = compile(constraint(), source);
  if (compiled.problem) {
    std::vector<std::string> warnings = free_functions(functions, source, *compiled.problem);
    compiled = compile(constraint(), source);
    if (compiled.problem) throw not_enforceable("tools", *compiled.problem);
    std::ranges::move(warnings, std::back_inserter(request.warnings));
  }
  request.sampling.structured_output = constraint();
  return compiled.holder;
}

}  // namespace

std::shared_ptr<const void> constrain_answer(GenerationRequest& request, ToolFormat tools,
                                             const std::string& begins_after,
                                             const AnswerSource& source) {
  std::optional<StructuredOutput>& answer = request.sampling.structured_output;
  Compiled compiled;
  if (answer) {
    answer->begins_after = begins_after;
    compiled = compile(*answer, source);
    if (compiled.problem) throw not_enforceable(request.constraint_field, *compiled.problem);
  }
  if (request.tool_choice == ToolChoice::kNone || tools == ToolFormat::kNone)
    return compiled.holder;
  return constrain_calls(request, tools, begins_after, source);
}

ApiError refusal_of(const GenerationRequest& request, const Error& error) {
  const std::string_view what = error.what();
  if (!what.starts_with(kEngineField)) return invalid_request(std::string(what));
  std::string sentence(what.substr(kEngineField.size()));
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  const bool limited = sentence.find("max_tokens") != std::string::npos;
  const char* prompt = request.kind == RequestKind::kChat ? "messages" : "prompt";
  return invalid_request(sentence, limited ? "max_tokens" : prompt, "invalid_value");
}

int64_t constraint_bytes(const GenerationRequest& request) {
  const auto& constraint = request.sampling.structured_output;
  if (!constraint) return 0;
  size_t bytes = constraint->text.size();
  for (const std::string& choice : constraint->choices) bytes += choice.size();
  for (const StructuralTag& tag : constraint->tags) {
    bytes += tag.begin.size() + tag.json_schema.size() + tag.end.size();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace quire::server
