#include "cli/commands/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <functional>
#include <ostream>

#include "cli/commands/command.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

struct OptionInfo {
  std::vector<std::string> names;  // with their dashes
  std::string help;
  std::vector<std::string> values;  // to choose from; empty: free
  bool takes_value = false;
  bool takes_file = false;
};

struct CommandInfo {
  std::string path;  // "bench latency"; "" for quire itself
  std::string help;
  std::vector<OptionInfo> options;
  std::vector<std::string> subcommands;
  bool takes_folder = false;  // it has a MODEL
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

OptionInfo describe(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  info.help = option.get_description();
  info.takes_value = option.get_type_size_max() > 0 && option.get_items_expected_max() > 0;
  const std::string type = option.get_type_name();
  if (info.takes_value && type.find('|') != std::string::npos) {
    info.values = split(type, '|');
  }
  info.takes_file = type == "FILE";
  return info;
}

void collect(const CLI::App& app, const std::string& path, std::vector<CommandInfo>& commands) {
  CommandInfo command;
  command.path = path;
  command.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.takes_folder = command.takes_folder || option->get_name() == "MODEL";
    } else if (!option->get_group().empty()) {  // help hides those without
      command.options.push_back(describe(*option));
    }
  }
  const auto subcommands = app.get_subcommands(std::function<bool(const CLI::App*)>());
  for (const CLI::App* subcommand : subcommands)
    command.subcommands.push_back(subcommand->get_name());
  commands.push_back(std::move(command));
  for (const CLI::App* subcommand : subcommands) {
    collect(*subcommand,
            path.empty() ? subcommand->get_name() : path + " " + subcommand->get_name(), commands);
  }
}

std::vector<CommandInfo> collect(const CLI::App& root) {
  std::vector<CommandInfo> commands;
  collect(root, "", commands);
  return commands;
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

// In single quotes, as sh and fish read them.
std::string quoted(std::string text) {
  for (size_t at = text.find('\''); at != std::string::npos; at = text.find('\'', at + 4)) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

std::string all_names(const CommandInfo& command) {
  std::vector<std::string> names = command.subcommands;
  for (const OptionInfo& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return joined(names, " ");
}

// The cases of a shell's `case "$command $previous"` that offer an option's values.
std::string value_cases(const std::vector<CommandInfo>& commands, std::string_view choices,
                        std::string_view files, std::string_view nothing) {
  std::string text;
  for (const CommandInfo& command : commands) {
    for (const OptionInfo& option : command.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(quoted(command.path + " " + name));
      }
      const std::string action =
          !option.values.empty() ? fmt::format(fmt::runtime(choices), joined(option.values, " "))
                                 : std::string(option.takes_file ? files : nothing);
      text += fmt::format("    {}) {}; return ;;\n", joined(patterns, "|"), action);
    }
  }
  return text;
}

std::string name_cases(const std::vector<CommandInfo>& commands, std::string_view choices,
                       std::string_view folders) {
  std::string text;
  for (const CommandInfo& command : commands) {
    text += fmt::format("    {}) {}{} ;;\n", quoted(command.path),
                        fmt::format(fmt::runtime(choices), all_names(command)),
                        command.takes_folder ? std::string(folders) : "");
  }
  return text;
}

// Words of commands, to find which command a line is about.
std::string command_cases(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> paths;
  for (const CommandInfo& command : commands) {
    if (!command.path.empty()) paths.push_back(quoted(command.path));
  }
  return joined(paths, "|");
}

}  // namespace

std::string bash_completion(const CLI::App& root) {
  const std::vector<CommandInfo> commands = collect(root);
  return "# bash completion for quire\n"
         "_quire() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= "
         "word\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case \"${command:+$command }$word\" in\n"
         "    " +
         command_cases(commands) +
         ") command=\"${command:+$command }$word\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$command $previous\" in\n" +
         value_cases(commands, "COMPREPLY=($(compgen -W '{}' -- \"$current\"))",
                     "mapfile -t COMPREPLY < <(compgen -f -- \"$current\")", "COMPREPLY=()") +
         "  esac\n"
         "  case \"$command\" in\n" +
         name_cases(
             commands, "COMPREPLY=($(compgen -W '{}' -- \"$current\"))",
             "; [[ $current == -* ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "
             "\"$current\"; compgen -f -X '!*.gguf' -- \"$current\")") +
         "  esac\n"
         "}\n"
         "complete -o filenames -F _quire quire\n";
}

std::string zsh_completion(const CLI::App& root) {
  const std::vector<CommandInfo> commands = collect(root);
  return "#compdef quire\n"
         "_quire() {\n"
         "  local current=${words[CURRENT]} previous=${words[CURRENT-1]} command= word\n"
         "  for word in ${words[2,CURRENT-1]}; do\n"
         "    case \"${command:+$command }$word\" in\n"
         "    " +
         command_cases(commands) +
         ") command=\"${command:+$command }$word\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$command $previous\" in\n" +
         value_cases(commands, "compadd -- {}", "_files", ":") +
         "  esac\n"
         "  case \"$command\" in\n" +
         name_cases(commands, "compadd -- {}", "; [[ $current == -* ]] || _files -g '*.gguf'") +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _quire ]; then _quire \"$@\"; else compdef _quire quire; fi\n";
}

std::string fish_completion(const CLI::App& root) {
  std::string text = "# fish completion for quire\ncomplete -c quire -f\n";
  for (const CommandInfo& command : collect(root)) {
    std::string condition;
    for (const std::string& word : split(command.path, ' ')) {
      if (!word.empty()) condition += fmt::format("__fish_seen_subcommand_from {}; and ", word);
    }
    const std::string here =
        command.subcommands.empty()
            ? condition.substr(0, condition.size() - 5 * static_cast<size_t>(!condition.empty()))
            : condition + "not __fish_seen_subcommand_from " + joined(command.subcommands, " ");
    for (const std::string& subcommand : command.subcommands) {
      text += fmt::format("complete -c quire -n {} -a {}\n", quoted(here), subcommand);
    }
    for (const OptionInfo& option : command.options) {
      std::string line = fmt::format("complete -c quire -n {}", quoted(here));
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.takes_value) line += option.takes_file ? " -r -F" : " -x";
      if (!option.values.empty()) line += " -a " + quoted(joined(option.values, " "));
      text += line + " -d " + quoted(option.help) + "\n";
    }
    if (command.takes_folder) {
      text +=
          fmt::format("complete -c quire -n {} -a '(__fish_complete_directories)'\n", quoted(here));
    }
  }
  return text;
}

namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  source <(quire completion bash)
  quire completion fish > ~/.config/fish/completions/quire.fish)";

class CompletionCommand : public Command {
 public:
  explicit CompletionCommand(CLI::App& root)
      : root_(root),
        app_(root.add_subcommand("completion",
                                 "Print a script that completes commands and options in a shell")) {
    app_->footer(kCompletionFooter);
    app_->add_option("SHELL", shell_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->type_name("");
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    terminal.out << (shell_ == "bash"  ? bash_completion(root_)
                     : shell_ == "zsh" ? zsh_completion(root_)
                                       : fish_completion(root_));
    return 0;
  }

 private:
  const CLI::App& root_;
  CLI::App* app_;
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion_command(CLI::App& root) {
  return std::make_unique<CompletionCommand>(root);
}

}  // namespace quire::cli
