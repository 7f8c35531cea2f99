#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "grammar/regex_parser.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct CategoryName {
  std::string_view short_name;
  std::string_view long_name;
};

// Names of a general category; those of one letter stand for all that begin with it.
constexpr CategoryName kCategories[] = {
    {"L", "Letter"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"M", "Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"S", "Symbol"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"C", "Other"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Cn", "Unassigned"},
    {"Co", "Private_Use"},
};

template <typename Holds>
CharacterSet characters_where(const Holds& holds) {
  CharacterSet set;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (!holds(c)) continue;
    if (!set.empty() && set.back().last + 1 == c) {
      set.back().last = c;
    } else {
      set.push_back({c, c});
    }
  }
  return set;
}

}  // namespace

CharacterSet unicode_property(std::string_view name) {
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (name == "Any") return {{0, 0x10FFFF}};
  if (name == "ASCII") return {{0, 0x7F}};
  const bool is_digit = name == "digit";
  const auto* const found = std::ranges::find_if(kCategories, [&](const CategoryName& category) {
    return category.short_name == name || category.long_name == name ||
           (is_digit && category.short_name == "Nd");
  });
  if (found == std::end(kCategories)) {
    throw Error(fmt::format(
        "not a regular expression that can be enforced: the property \\p{{{}}}; general categories "
        "are known",
        name));
  }
  const std::string_view wanted = found->short_name;
  return characters_where([&](char32_t c) {
    const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    return wanted.size() == 1 ? category[0] == wanted[0] : category == wanted;
  });
}

}  // namespace quire::grammar
