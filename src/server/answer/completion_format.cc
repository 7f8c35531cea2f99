#include "server/answer/completion_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::server {

CompletionFormatter::CompletionFormatter(const GenerationRequest& request, FormatContext context)
    : AnswerFormatter(request, std::move(context),
                      {.whole = "text_completion",
                       .event = "text_completion",
                       .text_open = R"(,"text":")",
                       .text_close = "\""}),
      choices_(request.num_choices()) {
  if (request.echo) {
    for (const auto& prompt : request.prompts) echoes_.push_back(echo_of(prompt));
  }
}

std::string CompletionFormatter::echo_of(
    const std::variant<std::string, std::vector<int32_t>>& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  if (context_.tokenizer == nullptr) return "";
  std::vector<int32_t> ids = std::get<std::vector<int32_t>>(prompt);
  std::erase_if(ids, [this](int32_t id) { return id >= context_.tokenizer->vocab_size(); });
  return context_.tokenizer->decode(ids);
}

std::string CompletionFormatter::begin() {
  return "";
}

std::string CompletionFormatter::push(size_t prompt_index, RequestOutput delta) {
  state_.count_prompt(prompt_index, delta);
  std::shared_ptr<const Prompt> prompt;  // made where a choice begins
  std::string out;
  for (CompletionOutput& output : delta.outputs) {
    const size_t index = state_.choice_index(prompt_index, output);
    if (state_.ended(index)) continue;
    state_.count_tokens(output);
    if (output.finish_reason) {
      state_.end_choice(index, std::string(to_string(*output.finish_reason)), output);
    }
    if (!choices_[index].begun && prompt == nullptr) {
      prompt = std::make_shared<const Prompt>(Prompt{
          std::move(delta.prompt_token_ids),
          std::make_shared<const CompletionLogprobs::Positions>(std::move(delta.prompt_logprobs))});
    }
    News news = news_of(prompt_index, prompt, std::move(output));
    if (options_.stream) {
      write_events(out, index, news);
    } else {
      keep(choices_[index].whole, std::move(news));
    }
  }
  return out;
}

CompletionFormatter::News CompletionFormatter::news_of(size_t prompt_index,
                                                       const std::shared_ptr<const Prompt>& prompt,
                                                       CompletionOutput output) {
  Choice& choice = choices_[state_.choice_index(prompt_index, output)];
  News news;
  news.text = std::move(output.text);
  const bool opening = !std::exchange(choice.begun, true);
  if (opening) news.prompt = prompt;
  if (opening && !echoes_.empty()) {
    news.text.insert(0, echoes_[prompt_index]);
    if (options_.logprobs) {
      news.logprobs.set_prompt(prompt->logprobs, first_token(*prompt), choice.text_offset);
    }
  }
  if (options_.logprobs) news.logprobs.append(std::move(output.logprobs), choice.text_offset);
  if (options_.token_ids) news.token_ids = std::move(output.token_ids);
  return news;
}

std::string CompletionFormatter::first_token(const Prompt& prompt) const {
  if (prompt.token_ids.empty()) return "";
  Logprob token;
  token.token_id = prompt.token_ids.front();
  if (context_.tokenizer != nullptr && token.token_id < context_.tokenizer->vocab_size()) {
    token.decoded_token = context_.tokenizer->decode({&token.token_id, 1});
  }
  return token_text(token, options_.tokens_as_ids);
}

bool CompletionFormatter::is_plain(const News& news) const {
  const bool tells_prompt = options_.token_ids && news.prompt != nullptr;
  return news.logprobs.empty() && news.token_ids.empty() && !tells_prompt;
}

void CompletionFormatter::write_events(std::string& out, size_t index, const News& news) const {
  if (!is_plain(news) || (options_.continuous_usage && !news.text.empty())) {
    write_choice_event(out, index, news, /*last=*/false);
  } else if (!news.text.empty()) {
    write_text_event(out, index, news.text);
  }
  if (state_.ended(index)) write_choice_event(out, index, {}, /*last=*/true);
}

void CompletionFormatter::write_choice_event(std::string& out, size_t index, const News& news,
                                             bool last) const {
  write_event(out, [&](JsonWriter& json) {
    json.key("choices").begin_array().begin_object();
    json.member("index", index).member("text", news.text);
    news.logprobs.write(json.key("logprobs"), options_.tokens_as_ids);
    if (last) {
      write_end_of_choice(json, index);
    } else {
      json.null_member("finish_reason");
    }
    if (options_.token_ids) {
      json.key("token_ids").values(news.token_ids);
      if (news.prompt != nullptr) json.key("prompt_token_ids").values(news.prompt->token_ids);
    }
    json.end_object().end_array();
  });
}

void CompletionFormatter::keep(News& whole, News news) {
  whole.text += news.text;
  whole.token_ids.insert(whole.token_ids.end(), news.token_ids.begin(), news.token_ids.end());
  whole.logprobs.append(std::move(news.logprobs));
  if (news.prompt != nullptr) whole.prompt = std::move(news.prompt);
}

void CompletionFormatter::add_choice(JsonParts& body, size_t index) {
  News& whole = choices_[index].whole;
  body.add([index, &whole](JsonWriter& json) {
    json.begin_object().member("index", index).member("text", whole.text).key("logprobs");
  });
  whole.logprobs.add_to(body, options_.tokens_as_ids);
  body.add([this, index](JsonWriter& json) { write_end_of_choice(json, index); });
  if (options_.prompt_logprobs) add_prompt_logprobs(body, whole);
  body.add([this, &whole](JsonWriter& json) {
    if (options_.token_ids) {
      json.key("token_ids").values(whole.token_ids);
      if (whole.prompt != nullptr) {
        json.key("prompt_token_ids").values(whole.prompt->token_ids);
      } else {
        json.null_member("prompt_token_ids");
      }
    }
    json.end_object();
    whole = {};
  });
}

void CompletionFormatter::add_prompt_logprobs(JsonParts& body, const News& whole) const {
  if (whole.prompt == nullptr) {
    body.add([](JsonWriter& json) { json.null_member("prompt_logprobs"); });
    return;
  }
  body.add([](JsonWriter& json) { json.key("prompt_logprobs").begin_array(); });
  body.add_items(whole.prompt->logprobs->size(), [&whole](JsonWriter& json, size_t i) {
    write_prompt_position(json, (*whole.prompt->logprobs)[i]);
  });
  body.add([](JsonWriter& json) { json.end_array(); });
}

bool CompletionFormatter::done() const {
  return state_.all_ended();
}

}  // namespace quire::server
