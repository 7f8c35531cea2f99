#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <ostream>
#include <system_error>

#include "base/suggest.h"
#include "cli/commands/command.h"
#include "cli/usage_error.h"
#include "quire/version.h"

namespace quire::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  quire chat                                     talk to the bundled model
  quire serve                                    the OpenAI-compatible server, and a web page
  quire generate --chat -p "define apple"        ask it once
  quire generate ~/models/Qwen3-0.6B -p "Once"   another model, from its folder
  quire pull Qwen/Qwen3-0.6B                     download one from the Hugging Face hub
  quire plan Qwen/Qwen3-0.6B                     what it would take of memory

'quire COMMAND --help' explains a command.)";

// The deepest subcommand that was chosen.
const CLI::App* chosen(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string full_name(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : full_name(app->get_parent()) + " " + app->get_name();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// What was wrong with the command line, in one sentence that says where help is.
std::string usage_message(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = chosen(&root);
  std::string message = error.what();
  // A mistyped command is also a missing one, and only the first is worth saying.
  const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                          dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (const std::vector<std::string> extras = app->remaining(); unexpected && !extras.empty()) {
    const std::string& extra = extras.front();
    if (extra.starts_with('-')) {
      message = fmt::format("there is no option {}{}", extra,
                            did_you_mean(extra.substr(0, extra.find('=')), option_names(*app)));
    } else if (!app->get_subcommands({}).empty()) {
      std::vector<std::string> commands;
      for (const CLI::App* command : app->get_subcommands({})) {
        commands.push_back(command->get_name());
      }
      message = fmt::format("there is no command {}{}", extra, did_you_mean(extra, commands));
    } else {
      message = fmt::format("unexpected argument '{}'", extra);
    }
  }
  return fmt::format("{} (see '{} --help')", message, full_name(app));
}

CLI::App* add_bench(CLI::App& root) {
  CLI::App* bench = root.add_subcommand("bench", "Measure how fast a model runs on this machine");
  bench->require_subcommand(1);
  return bench;
}

CLI::App* add_grammar(CLI::App& root) {
  CLI::App* grammar = root.add_subcommand("grammar", "Try what structured output is held to");
  grammar->require_subcommand(1);
  return grammar;
}

int parse_and_run(const std::vector<std::string>& arguments, Terminal& terminal) {
  CLI::App root("quire serves large language models from one binary.", "quire");
  root.require_subcommand(1);
  root.footer(kExamples);
  root.set_version_flag("--version", "quire " + std::string(version()), "Print the version");
  root.get_formatter()->column_width(34);
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_generate_command(root));
  commands.push_back(make_chat_command(root));
  commands.push_back(make_tokenize_command(root));
  commands.push_back(make_serve_command(root));
  commands.push_back(make_pull_command(root));
  CLI::App* bench = add_bench(root);
  commands.push_back(make_bench_throughput_command(*bench));
  commands.push_back(make_bench_latency_command(*bench));
  commands.push_back(make_bench_serve_command(*bench));
  commands.push_back(make_tune_command(root));
  commands.push_back(make_plan_command(root));
  commands.push_back(make_inspect_command(root));
  commands.push_back(make_check_command(root));
  commands.push_back(make_perplexity_command(root));
  commands.push_back(make_quantize_command(root));
  commands.push_back(make_merge_command(root));
  commands.push_back(make_grammar_check_command(*add_grammar(root)));
  commands.push_back(make_completion_command(root));

  if (arguments.empty()) {
    terminal.err << root.help();
    return kExitUsage;
  }
  try {
    root.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    const CLI::App* app = chosen(&root);
    terminal.out << app->help(app == &root ? "" : full_name(app->get_parent()));
    flush(terminal);
    return kExitOk;
  } catch (const CLI::CallForVersion& call) {
    terminal.out << call.what() << '\n';
    flush(terminal);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_message(root, error));
  }
  for (const auto& command : commands) {
    if (!command->app().parsed()) continue;
    const int code = command->run(terminal);
    flush(terminal);
    return code;
  }
  throw UsageError("no command was given (see 'quire --help')");
}

}  // namespace

int run(const std::vector<std::string>& arguments, Terminal& terminal) {
  try {
    return parse_and_run(arguments, terminal);
  } catch (const UsageError& error) {
    print_error(terminal, error.what());
    return kExitUsage;
  } catch (const std::bad_alloc&) {
    print_error(terminal, "out of memory");
    return kExitFailure;
  } catch (const std::filesystem::filesystem_error& error) {
    constexpr size_t kMaxShown = 200;
    const std::string path = error.path1().string();
    print_error(terminal,
                fmt::format("the path {} cannot be used: {}",
                            path.size() > kMaxShown ? path.substr(0, kMaxShown) + "..." : path,
                            error.code().message()));
    return kExitFailure;
  } catch (const std::system_error& error) {
    print_error(terminal, fmt::format("the system refused what quire needs: {}", error.what()));
    return kExitFailure;
  } catch (const std::exception& error) {
    print_error(terminal, error.what());
    return kExitFailure;
  }
}

}  // namespace quire::cli
