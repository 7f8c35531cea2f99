#pragma once
// A subcommand: its options on the command line, and what it does.
#include <memory>

#include "cli/terminal/terminal.h"

namespace CLI {
class App;
}

namespace quire::cli {

class Command {
 public:
  virtual ~Command() = default;

  // The CLI11 subcommand, which knows whether it was chosen.
  virtual const CLI::App& app() const = 0;
  // Runs it and returns the exit code. Throws UsageError for options that contradict each other,
  // Error for failures.
  virtual int run(Terminal& terminal) = 0;
};

// Each adds its subcommand with its options to `root`, which must outlive the command.
std::unique_ptr<Command> make_generate_command(CLI::App& root);
std::unique_ptr<Command> make_chat_command(CLI::App& root);
std::unique_ptr<Command> make_tokenize_command(CLI::App& root);
std::unique_ptr<Command> make_serve_command(CLI::App& root);
std::unique_ptr<Command> make_pull_command(CLI::App& root);
std::unique_ptr<Command> make_bench_throughput_command(CLI::App& bench);
std::unique_ptr<Command> make_bench_latency_command(CLI::App& bench);
std::unique_ptr<Command> make_bench_serve_command(CLI::App& bench);
std::unique_ptr<Command> make_tune_command(CLI::App& root);
std::unique_ptr<Command> make_plan_command(CLI::App& root);
std::unique_ptr<Command> make_inspect_command(CLI::App& root);
std::unique_ptr<Command> make_check_command(CLI::App& root);
std::unique_ptr<Command> make_perplexity_command(CLI::App& root);
std::unique_ptr<Command> make_quantize_command(CLI::App& root);
std::unique_ptr<Command> make_merge_command(CLI::App& root);
std::unique_ptr<Command> make_grammar_check_command(CLI::App& grammar);
std::unique_ptr<Command> make_completion_command(CLI::App& root);

}  // namespace quire::cli
