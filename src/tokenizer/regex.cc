#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "quire/error.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::uint32_t kHeapLimitKiB = 256 * 1024;

// White_Space. PCRE2's own \s has U+180E besides.
constexpr std::string_view kSpaceSet = "\\p{Z}\\t-\\r\\x{85}";

// Rewrites \s so that it means White_Space, and refuses what Ruby's syntax reads otherwise.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& field)
      : pattern_(pattern), field_(field) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        translate_escape();
      } else {
        translate_plain(pattern_[at_]);
      }
    }
    return std::move(out_);
  }

 private:
  void refuse(std::string_view what) const {
    throw Error(
        fmt::format("{} uses {}, which is not supported in a regular expression.", field_, what));
  }

  void translate_escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    at_ += 2;
    if (c == 's' || (c == 'S' && depth_ == 0)) {
      if (depth_ > 0) {
        out_.append(kSpaceSet);
      } else {
        out_.append(c == 's' ? "[" : "[^").append(kSpaceSet).append("]");
      }
      return;
    }
    if (std::string_view("hHRXKGyYgkNOCM").find(c) != std::string_view::npos) {
      refuse(fmt::format("\\{}", c));
    }
    out_.append({'\\', c});
    if (at_ < pattern_.size() && pattern_[at_] == '{' && (c == 'p' || c == 'P' || c == 'x')) {
      copy_until("}");
    }
    first_in_class_ = false;
  }

  void translate_plain(char c) {
    const std::string_view rest = pattern_.substr(at_);
    if (depth_ > 0) {
      if (rest.starts_with("&&")) refuse("an intersection of character classes (&&)");
      if (rest.starts_with("[:")) {
        copy_until(":]");
        return;
      }
      if (c == '[') refuse("a character class inside another");
      if (c == ']' && !first_in_class_) depth_ = 0;
      first_in_class_ = first_in_class_ && c == '^' && out_.back() == '[';
    } else if (c == '[') {
      depth_ = 1;
      first_in_class_ = true;
    } else if (rest.starts_with("}+")) {
      refuse("+ after a counted repeat ({n,m}+)");
    } else if (rest.starts_with("{,")) {
      refuse("a repeat without a lower bound ({,m})");
    } else if (rest.starts_with("(?m") || rest.starts_with("(*")) {
      refuse(rest.substr(0, 3));
    }
    out_.push_back(c);
    ++at_;
  }

  void copy_until(std::string_view end) {
    const std::size_t found = pattern_.find(end, at_);
    if (found == std::string_view::npos) refuse(fmt::format("an opening without its {}", end));
    out_.append(pattern_.substr(at_, found + end.size() - at_));
    at_ = found + end.size();
    first_in_class_ = false;
  }

  std::string_view pattern_;
  const std::string& field_;
  std::string out_;
  std::size_t at_ = 0;
  int depth_ = 0;  // 1 inside a character class
  bool first_in_class_ = false;
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

}  // namespace

Regex::Regex(std::string_view pattern, std::string field) : field_(std::move(field)) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error(fmt::format("{} is a regular expression of {} bytes; at most {} are supported.",
                            field_, pattern.size(), kMaxPatternBytes));
  }
  compile(Translator(pattern, field_).run(), PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
}

Regex::Regex(std::string_view literal, std::string field, Literal) : field_(std::move(field)) {
  compile(std::string(literal), PCRE2_LITERAL);
}

Regex Regex::from_literal(std::string_view literal, std::string field) {
  return Regex(literal, std::move(field), Literal{});
}

void Regex::compile(const std::string& pattern, std::uint32_t extra_options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | extra_options, &error, &offset, context.get());
  if (code == nullptr) {
    throw Error(fmt::format("{} is no valid regular expression: {} (at byte offset {} of \"{}\").",
                            field_, message_of(error), offset, pattern));
  }
  code_.reset(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
}

void Regex::for_each_match(std::string_view text,
                           const std::function<void(std::size_t, std::size_t)>& visit) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
  const MatchContext context(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                               PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      throw Error(
          fmt::format("{}: the regular expression failed on the text from byte offset {}: "
                      "{}.",
                      field_, from, message_of(rc)));
    }
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    const std::size_t start = match[0];
    const std::size_t end = match[1];
    if (start >= end && last_end == end) {
      from = end < text.size() ? end + decode_at(text, end).size : end + 1;
      continue;
    }
    visit(start, end);
    from = last_end = end;
  }
}

}  // namespace quire::tokenizer_internal
