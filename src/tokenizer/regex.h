#pragma once
// Regular expressions that tokenizer.json may contain and quire has no hand-written scanner for.
//
// Hugging Face's library runs them through Oniguruma's Ruby syntax; this runs them through PCRE2,
// set up to agree: Unicode classes, ^ and $ at every line, \s as White_Space. Constructs that the
// two read differently are refused when the pattern is compiled.
//
// A Regex is immutable and may be used by several threads. Errors: quire::Error, also when a search
// takes more than kMatchLimit steps (a pattern that backtracks without end).
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace quire::tokenizer_internal {

class Regex {
 public:
  static constexpr std::uint32_t kMatchLimit = 20'000'000;
  static constexpr std::size_t kMaxPatternBytes = 16 * 1024;

  // `field` names the place the pattern comes from, for messages.
  Regex(std::string_view pattern, std::string field);

  // A pattern that matches `literal` as it stands.
  static Regex from_literal(std::string_view literal, std::string field);

  // Calls visit(start, end) for each match in order; matches do not overlap, and an empty match
  // right after another match is passed over. `text` must be valid UTF-8.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t, std::size_t)>& visit) const;

 private:
  struct Literal {};
  Regex(std::string_view literal, std::string field, Literal);
  void compile(const std::string& pattern, std::uint32_t extra_options);

  std::string field_;
  std::shared_ptr<void> code_;
};

}  // namespace quire::tokenizer_internal
