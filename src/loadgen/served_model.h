#pragma once
// What a server tells about itself before it is put under load.
#include <cstdint>
#include <optional>
#include <string>

#include "loadgen/http_options.h"

namespace quire::loadgen {

struct ServedModel {
  std::string id;
  // Where /v1/models tells it: "vocab_size", or llama.cpp's "meta": {"n_vocab"}.
  std::optional<int64_t> vocab_size;
};

// The model called `name` in /v1/models, or the first one if `name` is empty. If the server lists
// no such model, `name` is used and nothing else is known of the model. Throws Error if the server
// cannot be reached, or if `name` is empty and it names no model.
ServedModel find_served_model(const HttpOptions& options, const std::string& name);

// Whether /v1/completions takes a prompt of token ids, found out with a request for one token.
// Throws Error with the server's message if it takes no text either.
bool takes_token_ids(const HttpOptions& options, const std::string& model);

}  // namespace quire::loadgen
