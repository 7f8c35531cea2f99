#include "tokenizer/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/utf8.h"
#include "quire/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

// NFC, NFD, NFKC and NFKD. utf8proc knows a newer Unicode than Hugging Face's library: code points
// that the latter does not know are copied, and what lies between them is normalised on its own,
// which is how a character without properties acts.
class UnicodeForm final : public NormalizerStep {
 public:
  UnicodeForm(bool compose, bool compatible, const CharClasses& classes)
      : classes_(classes),
        options_(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                 (compatible ? UTF8PROC_COMPAT : 0)),
        is_nfc_(compose && !compatible) {}

  bool run(std::string_view text, std::size_t /*max_bytes*/, std::string& out) const override {
    std::size_t at = find_unsafe(text, 0);
    if (at == text.size()) return false;
    std::size_t copied = 0;
    while (at < text.size()) {
      out.append(text, copied, at - copied);
      copied = end_of_unsafe(text, at);
      normalize(text.substr(at, copied - at), out);
      at = find_unsafe(text, copied);
    }
    out.append(text, copied);
    return true;
  }

 private:
  bool is_unknown(char32_t c) const { return classes_.is(c, kUnknownToNormalizer); }

  // Whether `c` can take part in a change with what precedes it, or by itself.
  bool is_unsafe(char32_t c) const {
    return is_nfc_ ? classes_.is(c, kNfcUnsafe) : c >= 0x80 && !is_unknown(c);
  }

  // The start of the next stretch to normalise: an unsafe character and the known one before it.
  std::size_t find_unsafe(std::string_view text, std::size_t at) const {
    std::size_t before = text.size();
    while (at < text.size()) {
      if (static_cast<unsigned char>(text[at]) < 0x80) {
        before = at++;
        continue;
      }
      const CodePoint c = decode_at(text, at);
      if (is_unsafe(c.value)) return before == text.size() ? at : before;
      before = is_unknown(c.value) ? text.size() : at;
      at += c.size;
    }
    return text.size();
  }

  std::size_t end_of_unsafe(std::string_view text, std::size_t at) const {
    at += decode_at(text, at).size;
    while (at < text.size()) {
      const CodePoint c = decode_at(text, at);
      if (!is_unsafe(c.value)) break;
      at += c.size;
    }
    return at;
  }

  void normalize(std::string_view text, std::string& out) const {
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &result,
                     static_cast<utf8proc_option_t>(options_));
    if (size < 0) throw Error(fmt::format("Cannot normalise text: {}.", utf8proc_errmsg(size)));
    out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
    std::free(result);  // NOLINT: utf8proc allocates with malloc
  }

  const CharClasses& classes_;
  int options_;
  bool is_nfc_;
};

class Replace final : public NormalizerStep {
 public:
  Replace(Regex regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}

  bool run(std::string_view text, std::size_t max_bytes, std::string& out) const override {
    std::size_t copied = 0;
    bool changed = false;
    regex_.for_each_match(text, [&](std::size_t start, std::size_t end) {
      if (out.size() > max_bytes) return;
      out.append(text, copied, start - copied).append(content_);
      copied = end;
      changed = true;
    });
    if (changed) out.append(text, copied);
    return changed;
  }

 private:
  Regex regex_;
  std::string content_;
};

// Replace with a plain string, the common case (a space by the marker of SentencePiece).
class ReplaceLiteral final : public NormalizerStep {
 public:
  ReplaceLiteral(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}

  bool run(std::string_view text, std::size_t max_bytes, std::string& out) const override {
    std::size_t found = text.find(literal_);
    if (found == std::string_view::npos) return false;
    std::size_t copied = 0;
    while (found != std::string_view::npos && out.size() <= max_bytes) {
      out.append(text, copied, found - copied).append(content_);
      copied = found + literal_.size();
      found = text.find(literal_, copied);
    }
    out.append(text, copied);
    return true;
  }

 private:
  std::string literal_;
  std::string content_;
};

class Prepend final : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  bool run(std::string_view text, std::size_t /*max_bytes*/, std::string& out) const override {
    if (text.empty()) return false;
    out.append(prefix_).append(text);
    return true;
  }

 private:
  std::string prefix_;
};

class Strip final : public NormalizerStep {
 public:
  Strip(bool left, bool right, const CharClasses& classes)
      : left_(left), right_(right), classes_(classes) {}

  bool run(std::string_view text, std::size_t /*max_bytes*/, std::string& out) const override {
    std::size_t start = 0;
    std::size_t end = text.size();
    while (left_ && start < end) {
      const CodePoint c = decode_at(text, start);
      if (!classes_.is(c.value, kSpace)) break;
      start += c.size;
    }
    while (right_ && end > start) {
      const CodePoint c = decode_before(text, end);
      if (!classes_.is(c.value, kSpace)) break;
      end -= c.size;
    }
    out.assign(text.substr(start, end - start));
    return true;
  }

 private:
  bool left_;
  bool right_;
  const CharClasses& classes_;
};

class Lowercase final : public NormalizerStep {
 public:
  bool run(std::string_view text, std::size_t /*max_bytes*/, std::string& out) const override {
    constexpr char32_t kCapitalIWithDot =
        0x130;  // the one letter whose lower case is two characters
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = decode_at(text, at);
      at += c.size;
      if (c.value == kCapitalIWithDot) {
        out.append("i\u0307");
      } else {
        append_utf8(out, to_lower(c.value));
      }
    }
    return true;
  }
};

class SpellBytes final : public NormalizerStep {
 public:
  bool run(std::string_view text, std::size_t /*max_bytes*/, std::string& out) const override {
    append_spelled_bytes(out, text);
    return true;
  }
};

std::unique_ptr<NormalizerStep> make_replace(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  const std::string& content = field.at("content").as_string();
  if (const auto literal = pattern.find("String")) {
    if (literal->as_string().empty()) literal->fail("must not be empty");
    return std::make_unique<ReplaceLiteral>(literal->as_string(), content);
  }
  const JsonField regex = pattern.at("Regex");
  return std::make_unique<Replace>(Regex(regex.as_string(), regex.path()), content);
}

}  // namespace

Normalizer::Normalizer(const std::optional<JsonField>& field, const CharClasses& classes) {
  if (field) add_steps(*field, classes);
}

void Normalizer::add_steps(const JsonField& field, const CharClasses& classes) {
  const std::string& type = field.type();
  const auto form = [&](bool compose, bool compatible) {
    steps_.push_back(std::make_unique<UnicodeForm>(compose, compatible, classes));
  };
  if (type == "Sequence") {
    for (const JsonField& item : field.at("normalizers").items()) add_steps(item, classes);
  } else if (type == "NFC") {
    form(true, false);
  } else if (type == "NFD") {
    form(false, false);
  } else if (type == "NFKC") {
    form(true, true);
  } else if (type == "NFKD") {
    form(false, true);
  } else if (type == "Replace") {
    steps_.push_back(make_replace(field));
  } else if (type == "Prepend") {
    steps_.push_back(std::make_unique<Prepend>(field.at("prepend").as_string()));
  } else if (type == "Strip") {
    steps_.push_back(std::make_unique<Strip>(field.at("strip_left").as_bool(),
                                             field.at("strip_right").as_bool(), classes));
  } else if (type == "Lowercase") {
    steps_.push_back(std::make_unique<Lowercase>());
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<SpellBytes>());
  } else {
    field.unsupported(type,
                      "NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase, ByteLevel and "
                      "Sequence");
  }
}

std::string_view Normalizer::run(std::string_view text, std::string& storage) const {
  std::string_view current = text;
  std::string out;
  const std::size_t max_bytes = text.size() * kMaxGrowth + kMaxGrowthBytes;
  for (const auto& step : steps_) {
    out.clear();
    if (!step->run(current, max_bytes, out)) continue;
    if (out.size() > max_bytes) {
      throw Error(
          fmt::format("The normalizer of tokenizer.json makes more than {} bytes of a text of {}; "
                      "at most {} times as many, and {} more, are supported.",
                      max_bytes, text.size(), kMaxGrowth, kMaxGrowthBytes));
    }
    storage.swap(out);
    current = storage;
  }
  return current;
}

}  // namespace quire::tokenizer_internal
