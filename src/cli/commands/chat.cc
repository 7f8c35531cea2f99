// quire chat: a conversation on the terminal, or with lines from elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "base/suggest.h"
#include "cli/chat_session.h"
#include "cli/commands/command.h"
#include "cli/loading.h"
#include "cli/options/engine_options.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/options/sampling_fields.h"
#include "cli/terminal/line_editor.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr const char* kChatFooter =
    R"(On a terminal, Ctrl-C stops an answer and Ctrl-D ends the chat; what you typed is kept in
$XDG_STATE_HOME/quire/history. A line that ends in a backslash goes on in the next one, and lines between two
lines of """ belong together. /help lists the commands. Where standard input is no terminal, each line is a
message and only the answers are printed; --max-tokens is as many as the context holds.

Examples:
  quire chat
  quire chat ~/models/Qwen3-0.6B --no-think --system "Answer in one sentence."
  quire chat ~/models/Qwen3-0.6B --lora caps=./my-adapter
  printf 'define candid\nuse it in a sentence\n' | quire chat --temperature 0)";

constexpr const char* kHelp = R"(/help          this list
/reset         forget the conversation
/system TEXT   set the system message (without TEXT: none) and start anew
/retry         ask for the last answer again
/stats         tokens and speed of the last answer
/exit          leave, as Ctrl-D does
A line that ends in \ goes on in the next; """ opens and closes a text of several lines.
)";

// Options of other commands that a chat has no use for, and what it says to them.
struct RefusedOption {
  const char* name;
  const char* reason;
};
constexpr std::array kRefused = {
    RefusedOption{"--n", "a chat has one answer at a time"},
    RefusedOption{"--logprobs", "a chat prints text only; use 'quire generate --json'"},
    RefusedOption{"--prompt-logprobs", "a chat prints text only; use 'quire generate --json'"},
    RefusedOption{"--skip-tokenizer-init", "a chat needs a tokenizer"},
};

// A loop over entries; each is a command or a message.
class Repl {
 public:
  Repl(ChatSession& session, LineEditor& editor, Terminal& terminal)
      : session_(session),
        editor_(editor),
        terminal_(terminal),
        interactive_(terminal.in_is_terminal && terminal.out_is_terminal) {}

  int run();

 private:
  // Whether to go on.
  bool handle(const std::string& entry);
  bool handle_command(const std::string& entry);
  void report(ChatSession::Outcome outcome);
  void say(const std::string& message);
  void retry();
  void note(const std::string& text) {
    terminal_.out << styled(text, Style::kDim, terminal_.out_colours) << '\n';
  }
  auto printer() {
    return [this](std::string_view text) {
      terminal_.out << text;
      flush(terminal_);
    };
  }

  ChatSession& session_;
  LineEditor& editor_;
  Terminal& terminal_;
  bool interactive_;
  bool failed_ = false;
  bool interrupted_ = false;
};

int Repl::run() {
  if (interactive_) note("Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.");
  while (true) {
    const LineEditor::Result entry = read_entry(editor_, interactive_ ? "> " : "");
    if (entry.status == LineEditor::Status::kEnd) break;
    if (entry.status == LineEditor::Status::kInterrupted) continue;
    try {
      if (!handle(entry.line)) break;
    } catch (const Error& error) {
      print_error(terminal_, error.what());
      failed_ = true;
    }
    if (interrupted_ && !interactive_) return kExitInterrupted;
  }
  // Someone at the terminal has seen the errors and dealt with them.
  return failed_ && !interactive_ ? kExitFailure : kExitOk;
}

bool Repl::handle(const std::string& entry) {
  if (entry.find_first_not_of(" \t\n") == std::string::npos) return true;
  if (entry.front() == '/') return handle_command(entry);
  say(entry);
  return true;
}

bool Repl::handle_command(const std::string& entry) {
  const size_t space = entry.find_first_of(" \t\n");
  const std::string name = entry.substr(0, space);
  const size_t rest = space == std::string::npos ? space : entry.find_first_not_of(" \t\n", space);
  const std::string argument = rest == std::string::npos ? "" : entry.substr(rest);
  const std::vector<std::string> known = {"/help",  "/reset", "/system",
                                          "/retry", "/stats", "/exit"};
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw Error(fmt::format("there is no command {}{} (/help lists them)", name,
                            did_you_mean(name, known)));
  }
  if (!argument.empty() && name != "/system") {
    throw Error(fmt::format("{} takes nothing after it, got '{}'", name, argument));
  }
  if (name == "/exit") return false;
  if (name == "/help") {
    terminal_.out << kHelp;
  } else if (name == "/reset") {
    session_.reset();
    if (interactive_) note("The conversation starts anew.");
  } else if (name == "/system") {
    session_.set_system(argument);
    if (interactive_) {
      note(argument.empty() ? "No system message; the conversation starts anew."
                            : "The system message is set; the conversation starts anew.");
    }
  } else if (name == "/stats") {
    terminal_.out << session_.stats();
  } else {
    retry();
  }
  flush(terminal_);
  return true;
}

void Repl::say(const std::string& message) {
  report(session_.say(message, printer()));
}

void Repl::retry() {
  report(session_.retry(printer()));
}

void Repl::report(ChatSession::Outcome outcome) {
  terminal_.out << '\n';
  interrupted_ = outcome == ChatSession::Outcome::kInterrupted;
  if (interactive_ && interrupted_) note("(stopped)");
  if (interactive_ && outcome == ChatSession::Outcome::kLengthReached) {
    note("(cut at the token limit)");
  }
  if (interactive_ && outcome == ChatSession::Outcome::kContextFull) {
    note("(cut: the conversation is full; /reset starts a new one)");
  }
  flush(terminal_);
}

class ChatCommand : public Command {
 public:
  explicit ChatCommand(CLI::App& root)
      : app_(add_command(root, "chat", "Talk to a model", kChatFooter)) {
    add_chat_options(*app_, chat_options_);
    add_sampling_options(*app_, sampling_);
    add_lora_options(*app_, adapter_, /*several=*/false);
    add_engine_options(*app_, config_, /*seed_is_taken=*/true);
    for (const auto& [option, reason] : kRefused) hide(*app_, option);
  }

  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  void check_options() const;

  CLI::App* app_;
  EngineConfig config_;
  SamplingFields sampling_;
  ChatOptions chat_options_;
  GivenAdapters adapter_;  // one or none
};

void ChatCommand::check_options() const {
  for (const auto& [option, reason] : kRefused) {
    if (is_given(*app_, option)) throw UsageError(fmt::format("{}: {}", option, reason));
  }
  try {
    sampling_.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

int ChatCommand::run(Terminal& terminal) {
  check_options();
  const Interrupts interrupts;
  const std::unique_ptr<LineEditor> editor = make_line_editor(terminal, interrupts);
  const auto leave_at_once = [&editor] {
    editor->restore_terminal();
    exit_interrupted();
  };
  std::optional<InterruptHandler> while_loading(std::in_place, interrupts, leave_at_once);
  EngineConfig config = ready_to_load(config_, terminal);
  config.lora = lora_options_for(adapter_);
  const SamplingParams given = sampling_.apply({});
  if (given.seed) config.seed = *given.seed;
  AsyncLLM llm(std::move(config));
  report_device(llm.memory_plan(), terminal);
  SamplingParams params = sampling_.apply(llm.default_sampling_params());
  // An answer ends when the model says so, or when the context is full.
  if (!sampling_.has("max_tokens")) params.max_tokens.reset();
  llm.chat_template();  // throws where the model has none, before anything is typed
  while_loading.reset();

  ChatSession session(llm, interrupts, leave_at_once, chat_options_, params,
                      adapter_.adapters.empty() ? "" : adapter_.adapters.front().name);
  return Repl(session, *editor, terminal).run();
}

}  // namespace

std::unique_ptr<Command> make_chat_command(CLI::App& root) {
  return std::make_unique<ChatCommand>(root);
}

}  // namespace quire::cli
