#include "cli/bench/bench_serve_requests.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "cli/prompts.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

// Words that are one token, with the space before them, in about every vocabulary.
constexpr std::array<std::string_view, 16> kWords = {
    "time", "year", "people", "way",   "day",   "man",   "thing", "world",
    "life", "hand", "part",   "child", "place", "house", "point", "water"};

std::string words_for(const std::vector<int32_t>& token_ids) {
  std::string text;
  for (const int32_t id : token_ids) {
    if (!text.empty()) text += ' ';
    text += kWords[static_cast<size_t>(id) % kWords.size()];
  }
  return text;
}

Json user_message(std::string text) {
  return Json::array({Json{{"role", "user"}, {"content", std::move(text)}}});
}

// The chat endpoint takes a number as "top_logprobs", beside a flag.
void adapt_logprobs_to_chat(Json& body) {
  const auto logprobs = body.find("logprobs");
  if (logprobs == body.end() || !logprobs->is_number()) return;
  body["top_logprobs"] = *logprobs;
  body["logprobs"] = true;
}

loadgen::LoadRequest make_request(const std::string& path, Json prompt, const Json& sampling,
                                  const RequestFields& fields) {
  Json body = {{"model", fields.model}};
  body.update(prompt);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body.update(fields.sampling);
  body.update(sampling);
  if (path == kChatPath) adapt_logprobs_to_chat(body);
  body.update(fields.extra_body);
  loadgen::LoadRequest request;
  request.path = path;
  request.body = to_line(body);
  if (const auto ids = prompt.find("prompt"); ids != prompt.end() && ids->is_array()) {
    request.num_prompt_tokens = static_cast<int64_t>(ids->size());
  }
  return request;
}

struct EndpointPrompt {
  std::string path;
  Json prompt;
};

// What a line's prompt is in the body of a request, and the endpoint it goes to.
EndpointPrompt endpoint_prompt(const PromptRequest& line, const std::string& endpoint) {
  if (const auto* chat = std::get_if<ChatInput>(&line.prompt)) {
    if (!endpoint.empty() && endpoint != kChatPath) {
      throw Error(fmt::format("{}: messages go to {}, not to {}", line.where, kChatPath, endpoint));
    }
    Json prompt = {{"messages", chat->messages}};
    if (!chat->tools.is_null()) prompt["tools"] = chat->tools;
    if (!chat->add_generation_prompt) prompt["add_generation_prompt"] = false;
    if (!chat->template_kwargs.empty()) prompt["chat_template_kwargs"] = chat->template_kwargs;
    return {kChatPath, std::move(prompt)};
  }
  const std::string path = endpoint.empty() ? kCompletionsPath : endpoint;
  if (const auto* text = std::get_if<std::string>(&line.prompt)) {
    if (path == kChatPath) return {path, {{"messages", user_message(*text)}}};
    return {path, {{"prompt", *text}}};
  }
  if (path == kChatPath) {
    throw Error(
        fmt::format("{}: token ids go to {}, not to {}", line.where, kCompletionsPath, path));
  }
  return {path, {{"prompt", std::get<std::vector<int32_t>>(line.prompt)}}};
}

loadgen::LoadRequest request_of_line(std::string_view text, const std::string& where,
                                     const RequestFields& fields) {
  Json object = parse_json_object(text, where);
  std::optional<std::string> expected;
  if (const auto field = object.find("expected"); field != object.end()) {
    if (!field->is_string()) {
      throw Error(fmt::format("{}: expected: expected a string, got {}", where, json_kind(*field)));
    }
    expected = field->get<std::string>();
    object.erase("expected");
  }
  const PromptRequest line = prompt_from_json_line(to_line(object), where);
  auto [path, prompt] = endpoint_prompt(line, fields.endpoint);
  if (line.priority != 0) prompt["priority"] = line.priority;
  loadgen::LoadRequest request =
      make_request(path, std::move(prompt), line.sampling.given(), fields);
  request.expected_text = std::move(expected);
  return request;
}

}  // namespace

std::vector<loadgen::LoadRequest> requests_of(const BenchWorkload& workload, RandomPrompts kind,
                                              const RequestFields& fields) {
  std::vector<loadgen::LoadRequest> requests;
  requests.reserve(workload.prompts.size());
  for (size_t i = 0; i < workload.prompts.size(); ++i) {
    const std::vector<int32_t>& ids = workload.prompts[i];
    const Json prompt = fields.endpoint == kChatPath
                            ? Json{{"messages", user_message(words_for(ids))}}
                        : kind == RandomPrompts::kText ? Json{{"prompt", words_for(ids)}}
                                                       : Json{{"prompt", ids}};
    const Json sampling = {{"max_tokens", workload.output_lengths[i]}};
    requests.push_back(make_request(fields.endpoint, prompt, sampling, fields));
  }
  return requests;
}

std::vector<loadgen::LoadRequest> read_dataset(std::istream& in, std::string_view name,
                                               const RequestFields& fields) {
  std::vector<loadgen::LoadRequest> requests;
  for (size_t number = 1;; ++number) {
    const std::string where = fmt::format("{} line {}", name, number);
    std::optional<std::string> line = read_line(in, where);
    if (!line) break;
    if (line->ends_with('\r')) line->pop_back();
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    requests.push_back(request_of_line(*line, where, fields));
  }
  if (requests.empty()) throw Error(fmt::format("{} holds no prompt", name));
  return requests;
}

std::vector<loadgen::LoadRequest> read_dataset_file(const std::string& path,
                                                    const RequestFields& fields) {
  std::ifstream file(path, std::ios::binary);
  // A folder opens, and fails only when it is read.
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && file.bad())) {
    throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  file.clear();
  return read_dataset(file, path, fields);
}

}  // namespace quire::cli
