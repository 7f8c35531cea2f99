// One batch in which a question is answered by the model and by an adapter of it.
//
//   example_adapters MODEL_FOLDER ADAPTER_FOLDER
#include <iostream>
#include <string>
#include <vector>

#include "quire/quire.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: example_adapters MODEL_FOLDER ADAPTER_FOLDER\n";
    return 2;
  }
  try {
    quire::EngineConfig config;
    config.model = argv[1];
    config.lora.enabled = true;
    config.lora.modules = {{"mine", argv[2]}};
    quire::LLM llm(config);

    quire::SamplingParams greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 64;
    quire::ChatInput chat;
    chat.messages =
        quire::messages_to_json({{.role = "user", .content = "What does ephemeral mean?"}});
    // An empty name is the model itself.
    const std::vector<std::string> loras = {"", "mine"};
    const auto outputs = llm.chat({chat, chat}, {greedy, greedy}, loras);
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::cout << (loras[i].empty() ? "model" : loras[i]) << ": " << outputs[i].outputs[0].text
                << '\n';
    }
  } catch (const quire::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
