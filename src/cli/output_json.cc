#include "cli/output_json.h"

#include <vector>

namespace quire::cli {
namespace {

Json logprobs_to_json(const std::vector<PositionLogprobs>& positions) {
  Json list = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entries = Json::array();
    for (const Logprob& entry : position) {
      entries.push_back({{"token_id", entry.token_id},
                         {"logprob", entry.logprob},
                         {"rank", entry.rank},
                         {"decoded_token", entry.decoded_token}});
    }
    list.push_back(std::move(entries));
  }
  return list;
}

}  // namespace

Json output_to_json(size_t prompt_index, const Json& prompt, const RequestOutput& output,
                    const CompletionOutput& completion) {
  Json line;
  line["index"] = prompt_index;
  if (output.outputs.size() > 1) line["output_index"] = completion.index;
  line["prompt"] = prompt;
  line["text"] = completion.text;
  line["token_ids"] = completion.token_ids;
  line["finish_reason"] = to_string(completion.finish_reason.value_or(FinishReason::kAbort));
  if (completion.steered_to_end) line["steered_to_end"] = true;
  if (!output.error.empty()) line["error"] = output.error;
  line["num_prompt_tokens"] = output.prompt_token_ids.size();
  line["num_cached_tokens"] = output.num_cached_tokens;
  if (!completion.logprobs.empty()) line["logprobs"] = logprobs_to_json(completion.logprobs);
  if (!output.prompt_logprobs.empty()) {
    line["prompt_logprobs"] = logprobs_to_json(output.prompt_logprobs);
  }
  return line;
}

}  // namespace quire::cli
