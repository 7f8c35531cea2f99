// A grammar in GBNF, Lark's notation or EBNF, up to the last line, and a text there: a grammar or
// one quire::Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"
#include "grammar_limits.h"
#include "quire/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\n');
  const std::string_view text =
      end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  try {
    quire::grammar::accepts(
        quire::grammar::compile_gbnf(input.substr(0, end), fuzz_limits(std::size_t{1} << 14)),
        text.substr(0, 200));
  } catch (const quire::Error&) {
    // What is wrong with the grammar has been said.
  }
  return 0;
}
