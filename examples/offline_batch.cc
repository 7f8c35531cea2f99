// A batch of prompts in, their answers out.
//
//   example_offline_batch MODEL_FOLDER
#include <iostream>
#include <string>
#include <vector>

#include "quire/quire.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example_offline_batch MODEL_FOLDER\n";
    return 2;
  }
  try {
    quire::EngineConfig config;
    config.model = argv[1];
    quire::LLM llm(config);

    quire::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 64;

    const std::vector<std::string> questions = {"define apple", "What does candid mean?"};
    std::vector<quire::ChatInput> chats;
    for (const std::string& question : questions) {
      quire::ChatInput chat;
      chat.messages = quire::messages_to_json({{.role = "user", .content = question}});
      chats.push_back(chat);
    }
    const std::vector<quire::RequestOutput> outputs = llm.chat(chats, params);
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::cout << "> " << questions[i] << '\n' << outputs[i].outputs[0].text << '\n';
    }
  } catch (const quire::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
