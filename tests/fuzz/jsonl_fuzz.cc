// The .jsonl prompts of `quire generate`: every input is either prompts or one quire::Error.
#include <cstdint>
#include <sstream>
#include <string>

#include "cli/prompts.h"
#include "quire/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    const auto requests = quire::cli::read_prompts(in, "input", quire::cli::PromptFormat::kJsonl);
    for (const auto& request : requests) {
      request.sampling.apply({}).validate();
    }
  } catch (const quire::Error&) {
    // What is wrong with the input has been said.
  }
  return 0;
}
