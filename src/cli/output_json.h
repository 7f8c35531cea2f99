#pragma once
// An engine's outputs as JSON.
#include "cli/json_lines.h"
#include "quire/request_output.h"

namespace quire::cli {

// One output of a prompt, as a line of `quire generate --json`. `prompt` is null for token ids;
// "output_index" is there where the prompt has several outputs.
Json output_to_json(size_t prompt_index, const Json& prompt, const RequestOutput& output,
                    const CompletionOutput& completion);

}  // namespace quire::cli
