#include "server/answer/tokenize_format.h"

#include <utility>

namespace quire::server {

TokenizeBody::TokenizeBody(std::vector<int32_t> tokens, bool with_texts, const Tokenizer& tokenizer,
                           const ModelInfo& model)
    : tokens_(std::move(tokens)), tokenizer_(tokenizer) {
  json_.add([this, max_model_len = model.max_model_len](JsonWriter& json) {
    json.begin_object().member("count", tokens_.size()).member("max_model_len", max_model_len);
    json.key("tokens").begin_array();
  });
  json_.add_items(tokens_.size(), [this](JsonWriter& json, size_t i) { json.value(tokens_[i]); });
  if (with_texts) {
    json_.add([](JsonWriter& json) { json.end_array().key("token_strs").begin_array(); });
    json_.add_items(tokens_.size(), [this](JsonWriter& json, size_t i) {
      json.value(tokenizer_.id_to_token(tokens_[i]).value_or(""));
    });
    json_.add([](JsonWriter& json) { json.end_array().end_object(); });
  } else {
    json_.add([](JsonWriter& json) { json.end_array().null_member("token_strs").end_object(); });
  }
}

}  // namespace quire::server
