// A tokenizer.json from anywhere, and any text: an Error or ids, never a crash or a hang.
//
// An input is the file, a zero byte, and the text (JSON has no zero bytes).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "quire/error.h"
#include "quire/tokenizer.h"

namespace {

// Long enough for every path, short enough that a slow one stands out.
constexpr std::size_t kMaxTextBytes = 4096;

void require(bool ok) {
  if (!ok) std::abort();
}

void exercise(const quire::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  // Template processing may add ids that no token has.
  std::erase_if(ids, [&](std::int32_t id) { return id >= tokenizer.vocab_size(); });
  for (const bool skip : {false, true}) {
    quire::IncrementalDetokenizer detokenizer(tokenizer, skip);
    std::string pieces;
    for (const std::int32_t id : ids) pieces += detokenizer.push(id);
    pieces += detokenizer.finish();
    require(pieces == tokenizer.decode(ids, skip));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view file = input.substr(0, zero);
  const std::string_view text =
      zero == std::string_view::npos ? "Hello, world's 12345  test\n" : input.substr(zero + 1);
  try {
    exercise(quire::Tokenizer::from_json(file), text.substr(0, kMaxTextBytes));
  } catch (const quire::Error&) {
    // What a broken file or text must end in.
  }
  return 0;
}
