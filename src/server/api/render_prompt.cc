#include "server/api/render_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat/text.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

// What transformers (utils/chat_template_utils.py) appends to the last message to find it again.
// Some templates know it by this name. Its space shows whether the template trims the message.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kTagText = kTag.substr(0, kTag.size() - 1);

RenderedChat render(const ChatTemplate& chat_template, const ChatInput& chat) {
  try {
    return chat_template.render_marked(chat);
  } catch (const Error& error) {
    throw invalid_request(error.what(), "messages", "chat_template_error");
  }
}

void shorten(RenderedChat& rendered, size_t size) {
  rendered.text.resize(size);
  std::vector<TextSpan>& spans = rendered.from_messages;
  while (!spans.empty() && spans.back().begin >= size) spans.pop_back();
  if (!spans.empty()) spans.back().end = std::min(spans.back().end, size);
}

RenderedChat render_up_to_final_message(const ChatTemplate& chat_template, OwnedChat chat) {
  Json& content = chat.messages.back().at("content");
  content = content.get_ref<const std::string&>() + std::string(kTag);
  RenderedChat rendered = render(chat_template, chat);
  const std::string& text = rendered.text;
  const size_t end = text.rfind(kTagText);
  if (end == std::string::npos) {
    throw invalid_request(
        "continue_final_message is true, but the chat template does not show the last message.",
        "continue_final_message", "invalid_value");
  }
  const bool trimmed = text.compare(end, kTag.size(), kTag) != 0;
  shorten(rendered, end);
  if (trimmed) {
    shorten(rendered, chat_internal::strip(text, nullptr, /*left=*/false, /*right=*/true).size());
  }
  return rendered;
}

}  // namespace

RenderedChat render_chat(const ChatTemplate& chat_template, const OwnedChat& chat,
                         bool continue_final_message) {
  return continue_final_message ? render_up_to_final_message(chat_template, chat)
                                : render(chat_template, chat);
}

RenderedChat render_prompt(const ChatTemplate& chat_template, const GenerationRequest& request) {
  return render_chat(chat_template, request.chat, request.continue_final_message);
}

std::string echoed_message(const GenerationRequest& request) {
  if (!request.echo || request.chat.messages.empty()) return "";
  const Json& last = request.chat.messages.back();
  if (last.value("role", "") != "assistant") return "";
  return last.value("content", "");
}

}  // namespace quire::server
