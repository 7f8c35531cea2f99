#pragma once
// The options of quire serve.
#include <string>
#include <vector>

#include "server/app.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct ServeArguments {
  server::ServeOptions options{};
  std::vector<std::string> client_weights{};  // NAME=WEIGHT
  std::vector<std::string> lora_modules{};    // as parse_lora_module() reads them
};

// Adds them, and the engine's. `arguments` must outlive the app.
void add_serve_options(CLI::App& app, ServeArguments& arguments);

// The options, with the key of QUIRE_API_KEY among them. Throws UsageError for options that
// contradict each other.
server::ServeOptions complete(const ServeArguments& arguments);

}  // namespace quire::cli
