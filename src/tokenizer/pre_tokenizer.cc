#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/regex.h"
#include "tokenizer/scanner.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

Piece part(const Piece& piece, std::size_t start, std::size_t end) {
  return {piece.text.substr(start, end - start), piece.readable_end, piece.at_start && start == 0};
}

Piece whole(const std::string& text, bool at_start) {
  return {text, text.data() + text.size(), at_start};
}

void hand_on(const Piece& piece, const std::vector<Stretch>& stretches, PieceSink& next) {
  for (const Stretch& s : stretches) {
    if (s.start != s.end) next.take(part(piece, s.start, s.end));
  }
}

// Split with any pattern.
class RegexSplit final : public PreTokenizerStep {
 public:
  RegexSplit(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void run(const Piece& piece, PieceSink& next) const override {
    std::vector<Stretch> stretches;
    std::size_t previous = 0;
    regex_.for_each_match(piece.text, [&](std::size_t start, std::size_t end) {
      if (previous != start) stretches.push_back({previous, start, invert_});
      stretches.push_back({start, end, !invert_});
      previous = end;
    });
    if (previous != piece.text.size()) {
      stretches.push_back({previous, piece.text.size(), invert_});
    }
    hand_on(piece, apply_split_behavior(std::move(stretches), behavior_), next);
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Split with a pattern that has a scanner, where every piece is kept as it is.
class ScannerSplit final : public PreTokenizerStep {
 public:
  ScannerSplit(ScannerKind kind, const CharClasses& classes) : kind_(kind), classes_(classes) {}

  void run(const Piece& piece, PieceSink& next) const override {
    scan(kind_, piece.text, classes_,
         [&](std::size_t start, std::size_t end) { next.take(part(piece, start, end)); });
  }

 private:
  ScannerKind kind_;
  const CharClasses& classes_;
};

// ByteLevel's first half: a space before the first word.
class AddPrefixSpace final : public PreTokenizerStep {
 public:
  void run(const Piece& piece, PieceSink& next) const override {
    if (piece.text.starts_with(' ')) {
      next.take(piece);
    } else {
      next.take(whole(" " + std::string(piece.text), piece.at_start));
    }
  }
};

// ByteLevel's second half: bytes spelled as characters.
class SpellPieceBytes final : public PreTokenizerStep {
 public:
  void run(const Piece& piece, PieceSink& next) const override {
    std::string spelled;
    append_spelled_bytes(spelled, piece.text);
    next.take(whole(spelled, piece.at_start));
  }
};

// Splits where single characters are delimiters.
class ClassSplit final : public PreTokenizerStep {
 public:
  ClassSplit(std::uint8_t classes, SplitBehavior behavior, const CharClasses& table)
      : delimiters_(classes), behavior_(behavior), table_(table) {}

  void run(const Piece& piece, PieceSink& next) const override {
    std::vector<Stretch> stretches;
    for (std::size_t at = 0; at < piece.text.size();) {
      const CodePoint c = decode_at(piece.text, at);
      const bool match = table_.is(c.value, delimiters_);
      if (match || stretches.empty() || stretches.back().is_match) {
        stretches.push_back({at, at + c.size, match});
      } else {
        stretches.back().end = at + c.size;
      }
      at += c.size;
    }
    hand_on(piece, apply_split_behavior(std::move(stretches), behavior_), next);
  }

 private:
  std::uint8_t delimiters_;
  SplitBehavior behavior_;
  const CharClasses& table_;
};

// Whitespace: runs of \w and runs of what is neither \w nor \s; the white space goes.
class WordSplit final : public PreTokenizerStep {
 public:
  explicit WordSplit(const CharClasses& classes) : classes_(classes) {}

  void run(const Piece& piece, PieceSink& next) const override {
    std::size_t start = 0;
    std::uint8_t current = kSpace;
    for (std::size_t at = 0; at < piece.text.size();) {
      const CodePoint c = decode_at(piece.text, at);
      const std::uint8_t kind = classes_.is(c.value, kWord) ? kWord : classes_.of(c.value) & kSpace;
      if (kind != current) {
        if (current != kSpace) next.take(part(piece, start, at));
        start = at;
        current = kind;
      }
      at += c.size;
    }
    if (current != kSpace) next.take(part(piece, start, piece.text.size()));
  }

 private:
  const CharClasses& classes_;
};

class Metaspace final : public PreTokenizerStep {
 public:
  enum class Prepend { kFirst, kNever, kAlways };

  Metaspace(std::string marker, Prepend prepend, bool split)
      : marker_(std::move(marker)), prepend_(prepend), split_(split) {}

  void run(const Piece& piece, PieceSink& next) const override {
    std::string text;
    for (const char c : piece.text) {
      if (c == ' ') {
        text.append(marker_);
      } else {
        text.push_back(c);
      }
    }
    const bool wanted =
        prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
    if (wanted && !text.starts_with(marker_)) text.insert(0, marker_);
    const Piece out = whole(text, piece.at_start);
    if (!split_) {
      next.take(out);
      return;
    }
    // Each marker goes with what follows it.
    std::size_t start = 0;
    while (start < text.size()) {
      const std::size_t end = std::min(
          text.find(marker_, start + marker_.size() * starts_marker(text, start)), text.size());
      next.take(part(out, start, end));
      start = end;
    }
  }

 private:
  std::size_t starts_marker(const std::string& text, std::size_t at) const {
    return text.compare(at, marker_.size(), marker_) == 0 ? 1 : 0;
  }

  std::string marker_;
  Prepend prepend_;
  bool split_;
};

std::unique_ptr<PreTokenizerStep> make_metaspace(const JsonField& field) {
  using Prepend = Metaspace::Prepend;
  std::string marker;
  append_utf8(marker, field.at("replacement").as_code_point());
  auto prepend = Prepend::kAlways;
  if (const auto scheme = field.find("prepend_scheme")) {
    const std::string& name = scheme->as_string();
    if (name != "first" && name != "never" && name != "always") {
      scheme->unsupported(name, "first, never and always");
    }
    prepend = name == "first" ? Prepend::kFirst : name == "never" ? Prepend::kNever : prepend;
  }
  if (!field.bool_or("add_prefix_space", true)) {
    if (prepend != Prepend::kNever && field.find("prepend_scheme")) {
      field.fail("says add_prefix_space false, which prepend_scheme contradicts");
    }
    prepend = Prepend::kNever;
  }
  return std::make_unique<Metaspace>(marker, prepend, field.bool_or("split", true));
}

std::unique_ptr<PreTokenizerStep> make_split(const JsonField& field, const CharClasses& classes) {
  const JsonField pattern = field.at("pattern");
  const SplitBehavior behavior = parse_split_behavior(field.at("behavior"));
  const bool invert = field.bool_or("invert", false);
  if (const auto literal = pattern.find("String")) {
    return std::make_unique<RegexSplit>(Regex::from_literal(literal->as_string(), literal->path()),
                                        behavior, invert);
  }
  const JsonField regex = pattern.at("Regex");
  // A scanner's pieces are all matches and cover the text: isolated, they stay as they are.
  const bool keeps_all =
      behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert);
  if (const auto kind = find_scanner(regex.as_string()); kind && keeps_all) {
    return std::make_unique<ScannerSplit>(*kind, classes);
  }
  return std::make_unique<RegexSplit>(Regex(regex.as_string(), regex.path()), behavior, invert);
}

class NextStep final : public PieceSink {
 public:
  explicit NextStep(const std::function<void(const Piece&)>& run) : run_(run) {}
  void take(const Piece& piece) override { run_(piece); }

 private:
  const std::function<void(const Piece&)>& run_;
};

}  // namespace

PreTokenizer::PreTokenizer(const std::optional<JsonField>& field, const CharClasses& classes,
                           bool allow_bytes)
    : allow_bytes_(allow_bytes) {
  if (field) add_steps(*field, classes, true);
}

void PreTokenizer::add_steps(const JsonField& field, const CharClasses& classes, bool is_last) {
  const std::string& type = field.type();
  if (type == "Sequence") {
    const std::vector<JsonField> items = field.at("pretokenizers").items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      add_steps(items[i], classes, is_last && i + 1 == items.size());
    }
  } else if (type == "Split") {
    steps_.push_back(make_split(field, classes));
  } else if (type == "ByteLevel") {
    if (field.at("add_prefix_space").as_bool())
      steps_.push_back(std::make_unique<AddPrefixSpace>());
    if (field.bool_or("use_regex", true)) {
      steps_.push_back(std::make_unique<ScannerSplit>(ScannerKind::kGpt2, classes));
    }
    if (is_last && allow_bytes_) {
      emits_bytes_ = true;
    } else {
      steps_.push_back(std::make_unique<SpellPieceBytes>());
    }
  } else if (type == "Metaspace") {
    steps_.push_back(make_metaspace(field));
  } else if (type == "Digits") {
    const bool each = field.bool_or("individual_digits", false);
    steps_.push_back(std::make_unique<ClassSplit>(
        kNumeric, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, classes));
  } else if (type == "Punctuation") {
    const auto behavior = field.find("behavior");
    steps_.push_back(std::make_unique<ClassSplit>(
        kPunctuation, behavior ? parse_split_behavior(*behavior) : SplitBehavior::kIsolated,
        classes));
  } else if (type == "Whitespace") {
    steps_.push_back(std::make_unique<WordSplit>(classes));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(std::make_unique<ClassSplit>(kSpace, SplitBehavior::kRemoved, classes));
  } else {
    field.unsupported(type,
                      "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                      "WhitespaceSplit and Sequence");
  }
}

void PreTokenizer::run(const Piece& piece, PieceSink& sink) const {
  run_from(0, piece, sink);
}

void PreTokenizer::run_from(std::size_t step, const Piece& piece, PieceSink& sink) const {
  if (step == steps_.size()) {
    sink.take(piece);
  } else if (step + 1 == steps_.size()) {
    steps_[step]->run(piece, sink);
  } else {
    const std::function<void(const Piece&)> rest = [&](const Piece& p) {
      run_from(step + 1, p, sink);
    };
    NextStep next(rest);
    steps_[step]->run(piece, next);
  }
}

}  // namespace quire::tokenizer_internal
