// A template of any bytes, rendered with a fixed chat under tight limits: an Error or a text, never
// a crash, a hang or more memory than allowed.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "quire/chat_input.h"
#include "quire/chat_template.h"
#include "quire/error.h"

namespace {

quire::ChatInput make_input() {
  quire::ChatInput input;
  input.messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Grüße, 世界 <|im_end|>"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nok",
     "tool_calls": [{"id": "abcdefghi", "function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]},
    {"role": "tool", "content": {"content": 3}, "tool_call_id": "abcdefghi"},
    {"role": "user", "content": "bye"}])");
  input.tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
  input.template_kwargs = nlohmann::ordered_json::parse(
      R"({"enable_thinking": false, "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": "x"}})");
  input.now = std::chrono::local_days(std::chrono::year(2025) / 3 / 9);
  return input;
}

quire::TemplateLimits tight_limits() {
  quire::TemplateLimits limits;
  limits.max_source_bytes = 1 << 16;
  limits.max_output_bytes = 1 << 20;
  limits.max_string_bytes = 1 << 20;
  limits.max_list_items = 1 << 16;
  limits.max_memory_bytes = 16 << 20;
  limits.max_steps = 200'000;
  return limits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const quire::ChatInput input = make_input();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const quire::ChatTemplate chat_template(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
                                            tight_limits());
    chat_template.render(input);
  } catch (const quire::Error&) {
    // What a broken template must end with.
  }
  return 0;
}
