#include "loader/layer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <memory>
#include <new>
#include <utility>

#include "loader/json_fields.h"
#include "quire/error.h"

namespace quire {
namespace {

// A name of a layer has some 40 characters: enough for any pattern that is meant well, and soon
// reached by one that backtracks without end.
constexpr uint32_t kMatchLimit = 20'000;
constexpr size_t kMaxPatternBytes = 4096;
constexpr uint32_t kMaxNestedParentheses = 50;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

class LayerRegex {
 public:
  LayerRegex(const std::string& pattern, std::string field) : field_(std::move(field)) {
    if (pattern.size() > kMaxPatternBytes) {
      throw Error(fmt::format("{} holds a regular expression of {} bytes; quire reads up to {}.",
                              field_, pattern.size(), kMaxPatternBytes));
    }
    const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
        pcre2_compile_context_create(nullptr));
    if (!context) throw std::bad_alloc();
    pcre2_set_parens_nest_limit(context.get(), kMaxNestedParentheses);
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_ANCHORED | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C,
                                     &error, &offset, context.get());
    if (code == nullptr) {
      throw Error(fmt::format("{} holds {}, which is no regular expression: {} at byte {}.", field_,
                              loader_internal::shown(pattern), error_text(error), offset));
    }
    code_.reset(code, FreeCode());
  }

  bool operator()(std::string_view name) const {
    const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(
        pcre2_match_context_create(nullptr));
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), kMatchLimit);
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                   name.size(), 0, PCRE2_NO_JIT, data.get(), context.get());
    if (result >= 0) return true;
    if (result == PCRE2_ERROR_NOMATCH) return false;
    throw Error(fmt::format("{} holds a regular expression that cannot be matched with {}: {}.",
                            field_, name, error_text(result)));
  }

 private:
  std::string field_;
  std::shared_ptr<pcre2_code> code_;
};

std::string_view class_of(std::string_view layer) {
  return layer.ends_with("embed_tokens") ? "Embedding" : "Linear";
}

bool is_below(std::string_view root, std::string_view layer) {
  if (!layer.starts_with(root) || layer.size() == root.size()) return false;
  return layer[root.size()] == '.' || root.ends_with('.');
}

}  // namespace

LayerPattern LayerPattern::name(std::string text) {
  return {Kind::kName, std::move(text)};
}

LayerPattern LayerPattern::layer_class(std::string text) {
  return {Kind::kClass, std::move(text)};
}

LayerPattern LayerPattern::part(std::string text) {
  return {Kind::kPart, std::move(text)};
}

LayerPattern LayerPattern::ending(std::string text) {
  return {Kind::kEnding, std::move(text)};
}

LayerPattern LayerPattern::tree(std::string text) {
  return {Kind::kTree, std::move(text)};
}

LayerPattern LayerPattern::regex(std::string text, const std::string& field) {
  LayerPattern pattern(Kind::kRegex, std::move(text));
  pattern.regex_ = LayerRegex(pattern.text_, field);
  return pattern;
}

bool LayerPattern::matches(std::string_view layer) const {
  switch (kind_) {
    case Kind::kName:
      return layer == text_;
    case Kind::kClass:
      return class_of(layer) == text_;
    case Kind::kPart:
      return layer.find(text_) != std::string_view::npos;
    case Kind::kEnding:
      return layer.ends_with(text_);
    case Kind::kTree:
      return layer.ends_with(text_) || is_below(text_, layer);
    case Kind::kRegex:
      return regex_(layer);
  }
  return false;
}

}  // namespace quire
