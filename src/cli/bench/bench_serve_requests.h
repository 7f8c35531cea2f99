#pragma once
// The requests of `quire bench serve`: bodies for OpenAI's API out of random prompts or a data set.
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/bench_workload.h"
#include "cli/json_lines.h"
#include "loadgen/request.h"

namespace quire::cli {

inline constexpr const char* kCompletionsPath = "/v1/completions";
inline constexpr const char* kChatPath = "/v1/chat/completions";

struct RequestFields {
  std::string model;
  std::string endpoint;              // a path; empty: what each prompt is meant for
  Json sampling = Json::object();    // of the command; a line's own come before
  Json extra_body = Json::object();  // put in every body, before anything else
};

enum class RandomPrompts {
  kTokenIds,
  kText,  // as many common words as there would be tokens
};

// Each sequence of the workload as a request, with its output length as max_tokens.
std::vector<loadgen::LoadRequest> requests_of(const BenchWorkload& workload, RandomPrompts kind,
                                              const RequestFields& fields);

// Each line of a .jsonl stream called `name` as a request. Lines are those of `quire generate`, and
// may have "expected": the text that must come back. Blank lines are skipped. Throws Error naming
// the line that is wrong or does not suit the endpoint, or if there is no line.
std::vector<loadgen::LoadRequest> read_dataset(std::istream& in, std::string_view name,
                                               const RequestFields& fields);
std::vector<loadgen::LoadRequest> read_dataset_file(const std::string& path,
                                                    const RequestFields& fields);

}  // namespace quire::cli
