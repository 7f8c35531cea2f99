#pragma once
// Scripts that complete quire's commands and options in a shell, made from the commands themselves.
#include <string>

namespace CLI {
class App;
}

namespace quire::cli {

std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);
std::string fish_completion(const CLI::App& root);

}  // namespace quire::cli
