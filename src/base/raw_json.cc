#include "base/raw_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace quire {
namespace {

constexpr std::string_view kSpace = " \t\n\r";
constexpr std::string_view kBetween = " \t\n\r,:";
constexpr std::string_view kBehindValue = " \t\n\r,:]}";

// Goes through the text of an array or object, from its bracket on. Never beyond the text's end.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  // Whether another member or item follows. Stands at its beginning then.
  bool next() {
    skip_any_of(kBetween);
    return at_ < text_.size() && text_[at_] != '}' && text_[at_] != ']';
  }
  // The text of the value here, behind which it stands then.
  std::string_view take_value() {
    skip_any_of(kBetween);
    const size_t begin = at_;
    int depth = 0;
    do {
      const char c = at_ < text_.size() ? text_[at_] : ']';
      if (c == '"') {
        skip_string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {
        at_ = std::min(text_.find_first_of(kBehindValue, at_), text_.size());
      }
    } while (depth > 0 && at_ < text_.size());
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip_any_of(std::string_view characters) {
    at_ = std::min(text_.find_first_not_of(characters, at_), text_.size());
  }
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  size_t at_ = 1;
};

// `quoted`: a string with its quotes.
bool is_text(std::string_view quoted, std::string_view wanted) {
  if (quoted.find('\\') == std::string_view::npos) {
    return quoted.size() == wanted.size() + 2 && quoted.substr(1, wanted.size()) == wanted;
  }
  const nlohmann::json name = nlohmann::json::parse(quoted, nullptr, false);
  return name.is_string() && name.get_ref<const std::string&>() == wanted;
}

}  // namespace

RawJson::RawJson(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return;
  text_ = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

RawJson RawJson::find(std::string_view name) const {
  RawJson found;
  if (!text_.starts_with('{')) return found;
  Walk walk(text_);
  while (walk.next()) {
    const std::string_view key = walk.take_value();
    const std::string_view value = walk.take_value();
    if (is_text(key, name)) found = RawJson(value);
  }
  return found;
}

std::vector<RawJson> RawJson::items() const {
  std::vector<RawJson> found;
  if (!text_.starts_with('[')) return found;
  Walk walk(text_);
  while (walk.next()) found.push_back(RawJson(walk.take_value()));
  return found;
}

}  // namespace quire
