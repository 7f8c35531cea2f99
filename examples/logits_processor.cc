// A callback that changes the logits: here it forbids a token, the first one that the model would
// choose.
//
//   example_logits_processor MODEL_FOLDER
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <string>

#include "quire/quire.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example_logits_processor MODEL_FOLDER\n";
    return 2;
  }
  try {
    quire::EngineConfig config;
    config.model = argv[1];
    quire::LLM llm(config);

    quire::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 16;
    const quire::Prompt prompt = "The apple is";
    const quire::CompletionOutput without = llm.generate({prompt}, params)[0].outputs[0];

    const int32_t forbidden = without.token_ids.at(0);
    params.logits_processors.push_back(
        [forbidden](std::span<const int32_t>, std::span<float> logits) {
          logits[static_cast<size_t>(forbidden)] = -std::numeric_limits<float>::infinity();
        });
    const quire::CompletionOutput with = llm.generate({prompt}, params)[0].outputs[0];

    std::cout << "without: " << without.text << "\nwith: " << with.text << '\n';
    for (const int32_t id : with.token_ids) {
      if (id == forbidden) {
        std::cerr << "token " << forbidden << " was generated all the same\n";
        return 1;
      }
    }
  } catch (const quire::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
