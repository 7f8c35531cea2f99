#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "grammar/regex_parser.h"
#include "grammar/visible_text.h"
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

struct Category {
  std::string_view short_name;
  CharacterSet characters;
};

std::vector<Category> make_categories() {
  std::vector<Category> categories;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const auto code = static_cast<utf8proc_int32_t>(c);
    const auto number = static_cast<size_t>(utf8proc_category(code));
    if (number >= categories.size()) categories.resize(number + 1);
    Category& category = categories[number];
    if (category.characters.empty()) category.short_name = utf8proc_category_string(code);
    if (!category.characters.empty() && category.characters.back().last + 1 == c) {
      category.characters.back().last = c;
    } else {
      category.characters.push_back({c, c});
    }
  }
  return categories;
}

// Made once: it takes longer than most expressions do.
const std::vector<Category>& categories() {
  static const std::vector<Category> kMade = make_categories();
  return kMade;
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
        visible_text(name)));
  }
  const std::string_view wanted = found->short_name;
  CharacterSet set;
  for (const Category& category : categories()) {
    if (category.short_name.starts_with(wanted)) {
      set.insert(set.end(), category.characters.begin(), category.characters.end());
    }
  }
  return normalised(std::move(set));
}

}  // namespace quire::grammar
