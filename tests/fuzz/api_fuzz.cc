// What clients send to the API: every input is either a request, which can be rendered and
// answered, or one ApiError of the client's fault.
//
// The first byte chooses the endpoint, the rest is the body.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/generation_request.h"
#include "server/api/openapi.h"
#include "server/api/render_prompt.h"
#include "server/api/tokenize_request.h"

namespace {

using namespace quire;
using namespace quire::server;

ModelInfo fuzzed_model() {
  ModelInfo model;
  model.id = "m";
  model.max_model_len = 512;
  model.vocab_size = 1000;
  model.has_tokenizer = true;
  model.has_chat_template = true;
  return model;
}

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}";

void parse(char endpoint, std::string_view body) {
  static const ModelInfo model = fuzzed_model();
  static const ApiDescription api(model);
  static const ChatTemplate chat_template(kTemplate);
  switch (endpoint) {
    case 'c':
      render_prompt(chat_template, parse_chat_request(body, model, api));
      break;
    case 'p':
      if (parse_completion_request(body, model, api).prompts.empty()) std::abort();
      break;
    case 't': {
      auto request = parse_tokenize_request(parse_object_body(body), model, api);
      text_to_tokenize(request, &chat_template);
      break;
    }
    default:
      parse_detokenize_request(parse_object_body(body), model, api);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    parse(input[0], input.substr(1));
  } catch (const quire::server::ApiError& error) {
    if (error.status < 400 || error.status > 499) std::abort();
  }
  return 0;
}
