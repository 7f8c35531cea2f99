#pragma once
// The options of quire serve.
#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "server/app.h"

namespace quire::cli {

struct ServeArguments {
  server::ServeOptions options{};
  std::string api_key_file{};
};

// Adds them, and the engine's. `arguments` must outlive the app.
void add_serve_options(CLI::App& app, ServeArguments& arguments);

// The options, with the keys of --api-key-file and QUIRE_API_KEY among them and the model's folder
// found. Throws UsageError for options that contradict each other, Error for what cannot be read.
server::ServeOptions complete(const ServeArguments& arguments);

}  // namespace quire::cli
