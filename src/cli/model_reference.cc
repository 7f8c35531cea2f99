#include "cli/model_reference.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "cli/json_lines.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

constexpr int kVersion = 1;

const Json& field(const Json& object, const char* name, std::string_view where) {
  const auto found = object.find(name);
  if (found == object.end()) throw Error(fmt::format("{}: there is no {}", where, name));
  return *found;
}

std::vector<int32_t> ids_field(const Json& object, const char* name, std::string_view where) {
  auto ids = token_ids_from_json(field(object, name, where), fmt::format("{}: {}", where, name));
  if (ids.empty() || std::ssize(ids) > kMaxReferenceTokens) {
    throw Error(fmt::format("{}: {}: expected 1 to {} token ids, got {}", where, name,
                            kMaxReferenceTokens, ids.size()));
  }
  return ids;
}

double finite_number(const Json& value, const std::string& place) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    throw Error(fmt::format("{}: expected a number, got {}", place, json_kind(value)));
  }
  return value.get<double>();
}

std::vector<double> logprobs_field(const Json& object, const char* name, size_t count,
                                   std::string_view where) {
  const Json& list = field(object, name, where);
  if (!list.is_array() || list.size() != count) {
    throw Error(fmt::format("{}: {}: expected {} numbers, one for each output token, got {}", where,
                            name, count,
                            list.is_array() ? std::to_string(list.size()) : json_kind(list)));
  }
  std::vector<double> logprobs;
  for (const Json& value : list) {
    logprobs.push_back(
        finite_number(value, fmt::format("{}: {}[{}]", where, name, logprobs.size())));
  }
  return logprobs;
}

}  // namespace

std::string to_reference_text(const ModelReference& reference) {
  const KnownAnswer& answer = reference.answer;
  Json json;
  json["quire_reference"] = kVersion;
  json["tolerance"] = reference.tolerance;
  json["prompt"] = answer.prompt;
  json["prompt_token_ids"] = answer.prompt_token_ids;
  json["output_token_ids"] = answer.output_token_ids;
  json["logprobs"] = answer.logprobs;
  json["runner_up_logprobs"] = answer.runner_up_logprobs;
  return to_line(json) + "\n";
}

ModelReference parse_reference(std::string_view text, std::string_view where) {
  const Json json = parse_json_object(text, where);
  if (const Json& version = field(json, "quire_reference", where); version != kVersion) {
    throw Error(fmt::format("{}: quire_reference is {}; expected {}, which this quire writes",
                            where, json_kind(version), kVersion));
  }
  ModelReference reference;
  reference.tolerance =
      finite_number(field(json, "tolerance", where), fmt::format("{}: tolerance", where));
  if (reference.tolerance <= 0) {
    throw Error(
        fmt::format("{}: tolerance is {}; expected more than 0", where, reference.tolerance));
  }
  KnownAnswer& answer = reference.answer;
  const Json& prompt = field(json, "prompt", where);
  if (!prompt.is_string()) {
    throw Error(fmt::format("{}: prompt: expected a string, got {}", where, json_kind(prompt)));
  }
  answer.prompt = prompt.get<std::string>();
  answer.prompt_token_ids = ids_field(json, "prompt_token_ids", where);
  answer.output_token_ids = ids_field(json, "output_token_ids", where);
  const size_t count = answer.output_token_ids.size();
  answer.logprobs = logprobs_field(json, "logprobs", count, where);
  answer.runner_up_logprobs = logprobs_field(json, "runner_up_logprobs", count, where);
  return reference;
}

ModelReference read_reference(const std::string& path) {
  return parse_reference(read_text_file(path, kMaxLineBytes), path);
}

}  // namespace quire::cli
