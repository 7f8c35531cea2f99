// Messages cannot write special tokens, whatever they say and whatever the template does with it:
// real templates, with a tokenizer to which every token that they name is special.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/sanitized_test_util.h"
#include "quire/chat_input.h"
#include "quire/chat_template.h"
#include "quire/error.h"
#include "quire/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::filesystem::path kTemplates = QUIRE_SOURCE_DIR "/tests/golden/chat/templates";
const ChatTemplate::SpecialTokens kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

std::string read_template(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// All that looks like a special token in a template's source, and what names make of "<|NAME|>".
std::set<std::string> special_tokens_of(const std::string& source) {
  std::set<std::string> tokens = {"<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"};
  const std::regex pattern(R"(<\|?/?[a-z_]+\|?>|\[/?[A-Z_]+\]|<</?SYS>>)");
  for (auto found = std::sregex_iterator(source.begin(), source.end(), pattern);
       found != std::sregex_iterator(); ++found) {
    tokens.insert(found->str());
  }
  return tokens;
}

// Bytes are the tokens 0 to 255; then come the special ones.
Tokenizer tokenizer_with(const std::set<std::string>& special) {
  json file = {{"added_tokens", json::array()},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}}};
  int next_other = 256;  // how the byte alphabet spells bytes that are not printable
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    const int code_point = printable ? byte : next_other++;
    std::string spelled;
    if (code_point < 0x80) {
      spelled = static_cast<char>(code_point);
    } else {
      spelled = static_cast<char>(0xc0 | code_point >> 6);
      spelled += static_cast<char>(0x80 | (code_point & 0x3f));
    }
    file["model"]["vocab"][spelled] = id++;
  }
  for (const std::string& token : special) {
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return Tokenizer::from_json(file.dump());
}

std::vector<int32_t> specials_among(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<int32_t> special;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(special),
               [&](int32_t id) { return tokenizer.is_special(id); });
  return special;
}

// The special tokens in what the template itself wrote, one stretch after the other.
std::vector<int32_t> written_by_template(const Tokenizer& tokenizer, const RenderedChat& chat) {
  std::vector<int32_t> special;
  size_t at = 0;
  const auto add = [&](size_t end) {
    const auto found =
        specials_among(tokenizer, tokenizer.encode(chat.text.substr(at, end - at), false));
    special.insert(special.end(), found.begin(), found.end());
  };
  for (const TextSpan& span : chat.from_messages) {
    add(span.begin);
    at = span.end;
  }
  add(chat.text.size());
  return special;
}

// Chats whose every text is made of special tokens, their halves, and words.
class HostileChats {
 public:
  HostileChats(const std::set<std::string>& tokens, uint64_t seed)
      : tokens_(tokens.begin(), tokens.end()), random_(seed) {}

  ChatInput next() {
    ChatInput chat;
    chat.messages = ordered_json::array();
    if (chance(2)) chat.messages.push_back({{"role", "system"}, {"content", content()}});
    const int turns = 1 + number(3);
    for (int i = 0; i < turns; ++i) {
      chat.messages.push_back({{"role", "user"}, {"content", content()}});
      chat.messages.push_back({{"role", "assistant"}, {"content", content()}});
      if (chance(2)) chat.messages.back()["reasoning_content"] = text();
    }
    if (chance(2)) add_tool_round(chat);
    chat.messages.push_back({{"role", "user"}, {"content", content()}});
    if (chance(2)) {
      chat.tools = ordered_json::array(
          {{{"type", "function"},
            {"function",
             {{"name", "f"}, {"description", text()}, {"parameters", {{"type", text()}}}}}}});
    }
    return chat;
  }

 private:
  int number(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  bool chance(int of) { return number(of) == 0; }

  std::string text() {
    std::string out;
    for (int i = number(6); i >= 0; --i) {
      const std::string& token =
          tokens_[static_cast<size_t>(number(static_cast<int>(tokens_.size())))];
      const auto half = static_cast<size_t>(number(static_cast<int>(token.size())));
      switch (number(4)) {
        case 0:
          out += "word ";
          break;
        case 1:
          out += token.substr(0, half);
          break;
        case 2:
          out += token.substr(half);
          break;
        default:
          out += token;
      }
    }
    return out;
  }

  ordered_json content() {
    if (!chance(4)) return text();
    ordered_json parts = ordered_json::array();
    for (int i = number(3); i >= 0; --i) parts.push_back({{"type", "text"}, {"text", text()}});
    return parts;
  }

  void add_tool_round(ChatInput& chat) {
    const ordered_json arguments = {{text(), text()}, {"list", {1, text(), {{"k", text()}}}}};
    chat.messages.push_back(
        {{"role", "assistant"},
         {"content", text()},
         {"tool_calls",
          {{{"id", "abcdefghi"},
            {"type", "function"},
            {"function", {{"name", chance(2) ? text() : "f"}, {"arguments", arguments}}}}}}});
    chat.messages.push_back(
        {{"role", "tool"}, {"content", text()}, {"tool_call_id", "abcdefghi"}, {"name", text()}});
    chat.messages.push_back({{"role", "assistant"}, {"content", text()}});
  }

  std::vector<std::string> tokens_;
  std::mt19937_64 random_;
};

TEST(SpecialTokens, NoMessageWritesOne) {
  constexpr int kNumChats = kSanitized ? 20 : 100;
  int num_templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++num_templates;
    const std::string source = read_template(entry.path());
    const std::set<std::string> special = special_tokens_of(source);
    const ChatTemplate chat_template(source, kTokens);
    const Tokenizer tokenizer = tokenizer_with(special);
    HostileChats chats(special, 7);
    int num_rendered = 0;
    int num_forged = 0;
    for (int i = 0; i < 5000 && num_rendered < kNumChats; ++i) {
      RenderedChat rendered;
      try {
        rendered = chat_template.render_marked(chats.next());
      } catch (const Error&) {
        continue;  // what this template refuses
      }
      ++num_rendered;
      const auto ids = tokenizer.encode(rendered.text, rendered.from_messages, false);
      const auto expected = written_by_template(tokenizer, rendered);
      EXPECT_EQ(specials_among(tokenizer, ids), expected) << rendered.text;
      EXPECT_EQ(tokenizer.decode(ids), rendered.text);
      EXPECT_FALSE(expected.empty());
      const auto parsed = tokenizer.encode(rendered.text, false);
      num_forged += specials_among(tokenizer, parsed).size() > expected.size() ? 1 : 0;
    }
    EXPECT_EQ(num_rendered, kNumChats) << "too few chats that this template takes";
    EXPECT_GT(num_forged, num_rendered / 2) << "the chats are not hostile enough";
  }
  EXPECT_GE(num_templates, 8);
}

TEST(SpecialTokens, MayBeNoneInMessagesWithoutAnyDifference) {
  for (const auto& entry : std::filesystem::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_template(entry.path());
    const Tokenizer tokenizer = tokenizer_with(special_tokens_of(source));
    ChatInput chat;
    chat.messages = {{{"role", "user"}, {"content", " Grüße, < |b> [c] "}}};
    const RenderedChat rendered = ChatTemplate(source, kTokens).render_marked(chat);
    EXPECT_FALSE(rendered.from_messages.empty());
    EXPECT_EQ(tokenizer.encode(rendered.text, rendered.from_messages, false),
              tokenizer.encode(rendered.text, false))
        << entry.path();
  }
}

}  // namespace
}  // namespace quire
