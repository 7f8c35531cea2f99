// quire tokenize: text to token ids and back, as the model's tokenizer does it.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>

#include "base/json_text.h"
#include "base/suggest.h"
#include "cli/commands/command.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/prompts.h"
#include "quire/error.h"
#include "quire/model_text.h"

namespace quire::cli {
namespace {

constexpr const char* kTokenizeFooter =
    R"(Reads lines and prints {"token_ids": [...], "text": "..."} for each. A line is text, or with --json
  {"text": "..."}                 encoded; "text" of the answer is the ids decoded again
  {"token_ids": [1, 2]}           decoded
  {"messages": [...], "tools"?, "add_generation_prompt"?, "chat_template_kwargs"?}
                                  rendered with the chat template, then encoded without adding special
                                  tokens; "text" is the rendered prompt
Needs only the tokenizer's files of a model folder, or a GGUF file.

Examples:
  echo "Hello, world" | quire tokenize ~/models/Qwen3-0.6B
  echo '{"messages": [{"role": "user", "content": "hi"}]}' | quire tokenize --json)";

class TokenizeCommand : public Command {
 public:
  explicit TokenizeCommand(CLI::App& root)
      : app_(add_command(root, "tokenize", "Turn text into token ids and back", kTokenizeFooter)) {
    add_model_argument(*app_, model_);
    add_text(*app_, {"--file", "FILE", "Read this file instead of standard input"}, file_);
    add_flag(*app_, {"--json", "", "Lines are JSON objects"}, json_);
    add_flag(*app_, {"--no-special-tokens", "", "Add no special tokens (a BOS, say) when encoding"},
             no_special_tokens_);
    add_flag(*app_, {"--skip-special-tokens", "", "Leave special tokens out when decoding"},
             skip_special_tokens_);
  }

  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  struct Result {
    std::vector<int32_t> token_ids;
    std::string text;
  };
  Result from_text(const std::string& text) const;
  Result from_json(std::string_view line, std::string_view where);
  const ChatTemplate& chat_template();

  CLI::App* app_;
  std::string model_;
  std::string file_;
  bool json_ = false;
  bool no_special_tokens_ = false;
  bool skip_special_tokens_ = false;
  std::filesystem::path folder_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;  // read when a line first needs it
};

const ChatTemplate& TokenizeCommand::chat_template() {
  if (!chat_template_) chat_template_ = load_chat_template(folder_);
  return *chat_template_;
}

TokenizeCommand::Result TokenizeCommand::from_text(const std::string& text) const {
  Result result;
  result.token_ids = tokenizer_->encode(text, !no_special_tokens_);
  result.text = tokenizer_->decode(result.token_ids, skip_special_tokens_);
  return result;
}

TokenizeCommand::Result TokenizeCommand::from_json(std::string_view line, std::string_view where) {
  const Json object = parse_json_object(line, where);
  const bool is_chat = object.contains("messages");
  std::vector<std::string> known = {"text", "token_ids", "messages"};
  for (const auto& [name, value] : object.items()) {
    const bool expected = is_chat ? is_chat_field(name) : name == "text" || name == "token_ids";
    if (!expected && is_chat_field(name)) {
      throw Error(fmt::format("there is {} without messages", name));
    }
    if (!expected) {
      throw Error(fmt::format("unexpected field {}{}", name, did_you_mean(name, known)));
    }
  }
  if (object.contains("text") == object.contains("token_ids") && !is_chat) {
    throw Error("expected exactly one of the fields text, token_ids and messages");
  }
  if (is_chat) {
    Result result;
    result.text = chat_template().render(chat_from_json(object, where));
    result.token_ids = tokenizer_->encode(result.text, /*add_special_tokens=*/false);
    return result;
  }
  if (object.contains("token_ids")) {
    Result result;
    result.token_ids = token_ids_from_json(object["token_ids"], "token_ids");
    result.text = tokenizer_->decode(result.token_ids, skip_special_tokens_);
    return result;
  }
  if (!object["text"].is_string()) {
    throw Error(fmt::format("text: expected a string, got {}", json_kind(object["text"])));
  }
  return from_text(object["text"].get<std::string>());
}

int TokenizeCommand::run(Terminal& terminal) {
  // A folder that holds a tokenizer and nothing else is enough.
  folder_ = std::filesystem::is_directory(model_) ? model_ : model_folder(model_);
  tokenizer_ = load_tokenizer(folder_);
  std::ifstream file;
  if (!file_.empty()) file = open_lines(file_);
  std::istream& in = file_.empty() ? terminal.in : file;
  const std::string name = file_.empty() ? "standard input" : file_;
  for (size_t number = 1;; ++number) {
    const std::string where = fmt::format("{} line {}", name, number);
    const std::optional<std::string> line = read_line(in, where);
    if (!line) break;
    Result result;
    try {
      result = json_ ? from_json(*line, where) : from_text(*line);
    } catch (const Error& error) {
      const std::string_view message = error.what();
      throw Error(message.starts_with(where) ? std::string(message)
                                             : fmt::format("{}: {}", where, message));
    }
    terminal.out << to_line({{"token_ids", result.token_ids}, {"text", result.text}}) << '\n';
    if (terminal.in_is_terminal) flush(terminal);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_tokenize_command(CLI::App& root) {
  return std::make_unique<TokenizeCommand>(root);
}

}  // namespace quire::cli
