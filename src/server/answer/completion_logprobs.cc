#include "server/answer/completion_logprobs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "server/answer/format_parts.h"

namespace quire::server {

void CompletionLogprobs::set_prompt(std::shared_ptr<const Positions> positions,
                                    std::string first_token, int64_t& offset) {
  check(empty(), "an echoed prompt's logprobs come behind others");
  first_token_ = std::move(first_token);
  prompt_ = std::move(positions);
  for (const PositionLogprobs& position : *prompt_) count(position, offset);
}

void CompletionLogprobs::append(Positions positions, int64_t& offset) {
  for (PositionLogprobs& position : positions) {
    count(position, offset);
    own_.push_back(std::move(position));
  }
}

void CompletionLogprobs::append(CompletionLogprobs next) {
  if (empty()) {
    *this = std::move(next);
    return;
  }
  std::ranges::move(next.own_, std::back_inserter(own_));
  offsets_.insert(offsets_.end(), next.offsets_.begin(), next.offsets_.end());
}

void CompletionLogprobs::count(const PositionLogprobs& position, int64_t& offset) {
  offsets_.push_back(offset);
  offset += static_cast<int64_t>(
      num_characters(position.empty() ? first_token_ : position.front().decoded_token));
}

const PositionLogprobs& CompletionLogprobs::at(size_t i) const {
  const size_t num_prompt = prompt_ == nullptr ? 0 : prompt_->size();
  return i < num_prompt ? (*prompt_)[i] : own_[i - num_prompt];
}

void CompletionLogprobs::write_logprob(JsonWriter& json, size_t i) const {
  if (at(i).empty()) {
    json.null();
  } else {
    json.value(finite(at(i).front().logprob));
  }
}

void CompletionLogprobs::write_token(JsonWriter& json, size_t i, bool as_id) const {
  json.value(at(i).empty() ? first_token_ : token_text(at(i).front(), as_id));
}

void CompletionLogprobs::write(JsonWriter& json, bool tokens_as_ids) const {
  if (empty()) {
    json.null();
    return;
  }
  json.begin_object().key("text_offset").values(offsets_);
  json.key("token_logprobs").begin_array();
  for (size_t i = 0; i < size(); ++i) write_logprob(json, i);
  json.end_array().key("tokens").begin_array();
  for (size_t i = 0; i < size(); ++i) write_token(json, i, tokens_as_ids);
  json.end_array().key("top_logprobs").begin_array();
  for (size_t i = 0; i < size(); ++i) write_top_logprobs(json, at(i), tokens_as_ids);
  json.end_array().end_object();
}

void CompletionLogprobs::add_to(JsonParts& body, bool tokens_as_ids) const {
  if (empty()) {
    body.add([](JsonWriter& json) { json.null(); });
    return;
  }
  const auto next_list = [&body](const char* name) {
    body.add([name](JsonWriter& json) { json.end_array().key(name).begin_array(); });
  };
  body.add([](JsonWriter& json) { json.begin_object().key("text_offset").begin_array(); });
  body.add_items(size(), [this](JsonWriter& json, size_t i) { json.value(offsets_[i]); });
  next_list("token_logprobs");
  body.add_items(size(), [this](JsonWriter& json, size_t i) { write_logprob(json, i); });
  next_list("tokens");
  body.add_items(size(), [this, tokens_as_ids](JsonWriter& json, size_t i) {
    write_token(json, i, tokens_as_ids);
  });
  next_list("top_logprobs");
  body.add_items(size(), [this, tokens_as_ids](JsonWriter& json, size_t i) {
    write_top_logprobs(json, at(i), tokens_as_ids);
  });
  body.add([](JsonWriter& json) { json.end_array().end_object(); });
}

}  // namespace quire::server
