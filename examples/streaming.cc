// Two requests at once on an engine with a thread of its own; each streams, one is cancelled.
//
//   example_streaming MODEL_FOLDER
#include <iostream>
#include <optional>
#include <string>

#include "quire/quire.h"

namespace {

quire::ChatInput question(const std::string& text) {
  quire::ChatInput chat;
  chat.messages = quire::messages_to_json({{.role = "user", .content = text}});
  return chat;
}

// Prints the pieces as they come, at most `max_pieces` of them.
void print(const char* name, quire::RequestStream& stream, int max_pieces) {
  std::cout << name << ": ";
  int pieces = 0;
  while (const std::optional<quire::RequestOutput> output = stream.next()) {
    std::cout << output->outputs[0].text << std::flush;
    // The last output still comes; then next() gives nothing.
    if (++pieces == max_pieces) stream.cancel();
  }
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example_streaming MODEL_FOLDER\n";
    return 2;
  }
  try {
    quire::EngineConfig config;
    config.model = argv[1];
    quire::AsyncLLM llm(config);

    quire::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 64;
    quire::RequestStream first = llm.chat(question("define river"), params);
    quire::RequestStream second = llm.chat(question("use mountain in a sentence"), params);
    print("first", first, 1000);
    print("second", second, 3);
  } catch (const quire::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
