#include "engine/model_check_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>

#include "quire/chat_input.h"

namespace quire {
namespace {

constexpr const char* kText = "The quick brown fox jumps over 13 lazy dogs.";
constexpr const char* kQuestion = "What is the capital of France?";

std::string_view without_leading_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

void check_special_token(const char* name, const std::string& token, std::optional<int32_t> id,
                         std::vector<std::string>& problems) {
  if (token.empty() || id) return;
  problems.push_back(
      fmt::format("tokenizer_config.json names the {} \"{}\", which is no token of tokenizer.json.",
                  name, token));
}

// The markers like <|im_start|> in `text`.
std::set<std::string> markers_in(std::string_view text) {
  std::set<std::string> markers;
  for (size_t begin = text.find("<|"); begin != std::string_view::npos;
       begin = text.find("<|", begin + 2)) {
    const size_t end = text.find("|>", begin + 2);
    if (end == std::string_view::npos) break;
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
      return c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
             (c >= 'A' && c <= 'Z');
    });
    if (is_name) markers.emplace(text.substr(begin, end + 2 - begin));
  }
  return markers;
}

}  // namespace

std::vector<std::string> check_tokenizer(const Tokenizer& tokenizer,
                                         std::span<const int32_t> eos_token_ids,
                                         int64_t vocab_size) {
  std::vector<std::string> problems;
  if (tokenizer.vocab_size() > vocab_size) {
    problems.push_back(fmt::format(
        "tokenizer.json has ids up to {}, and the model's embedding {} rows (vocab_size in "
        "config.json); expected a row for each id.",
        tokenizer.vocab_size() - 1, vocab_size));
  }
  for (const int32_t id : eos_token_ids) {
    if (tokenizer.id_to_token(id)) continue;
    problems.push_back(
        fmt::format("The end-of-sequence token {} of generation_config.json or config.json is no "
                    "token of tokenizer.json.",
                    id));
  }
  check_special_token("bos_token", tokenizer.bos_token(), tokenizer.bos_token_id(), problems);
  check_special_token("eos_token", tokenizer.eos_token(), tokenizer.eos_token_id(), problems);
  if (eos_token_ids.empty()) {
    problems.emplace_back(
        "Nothing ends an answer: neither generation_config.json nor config.json names an "
        "end-of-sequence token.");
  }
  const std::string back = tokenizer.decode(tokenizer.encode(kText, false));
  if (without_leading_spaces(back) != kText) {
    problems.push_back(
        fmt::format("\"{}\" encoded and decoded is \"{}\"; expected the same text.", kText, back));
  }
  return problems;
}

std::vector<std::string> check_chat_template(const ChatTemplate& chat_template,
                                             const Tokenizer& tokenizer) {
  const std::vector<Message> conversation = {
      {"user", "Good morning."}, {"assistant", "Good morning to you."}, {"user", kQuestion}};
  ChatInput input;
  input.messages = messages_to_json(conversation);
  const std::string prompt = chat_template.render(input);
  std::vector<std::string> problems;
  for (const Message& message : conversation) {
    if (prompt.find(message.content) != std::string::npos) continue;
    problems.push_back(
        fmt::format("A conversation of three messages is rendered without \"{}\" of the {}.",
                    message.content, message.role));
  }
  for (const std::string& marker : markers_in(prompt)) {
    if (tokenizer.token_to_id(marker)) continue;
    problems.push_back(fmt::format("It writes {}, which is no token of tokenizer.json.", marker));
  }
  return problems;
}

std::string known_prompt(const ChatTemplate* chat_template) {
  if (chat_template == nullptr) return kQuestion;
  ChatInput input;
  input.messages = messages_to_json({{"user", kQuestion}});
  input.now = std::chrono::local_days(std::chrono::January / 1 / 2025);  // the same text every day
  return chat_template->render(input);
}

}  // namespace quire
