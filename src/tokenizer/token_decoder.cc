#include "tokenizer/token_decoder.h"

#include <limits>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Appends the bytes that a token spells in the alphabet. A token with any character outside it
// stands for itself.
void append_spelled(std::string_view text, std::string& bytes) {
  const std::size_t size = bytes.size();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    at += c.size;
    const bool known = c.value < kByteAlphabet.byte_of.size() &&
                       kByteAlphabet.byte_of[c.value] != ByteAlphabet::kNoByte;
    if (!known) {
      bytes.resize(size);
      bytes.append(text);
      return;
    }
    bytes.push_back(static_cast<char>(kByteAlphabet.byte_of[c.value]));
  }
}

class ByteLevelSink final : public TokenSink {
 public:
  explicit ByteLevelSink(TokenSink& next) : next_(next) {}

  void token(std::string_view text) override {
    append_spelled(text, bytes_);
    std::string out;
    drain_utf8_lossy(bytes_, false, out);
    if (!out.empty()) next_.token(out);
  }
  void end() override {
    std::string out;
    drain_utf8_lossy(bytes_, true, out);
    if (!out.empty()) next_.token(out);
    next_.end();
  }

 private:
  TokenSink& next_;
  std::string bytes_;
};

class ReplaceSink final : public TokenSink {
 public:
  ReplaceSink(const ReplaceStep& step, TokenSink& next) : step_(step), next_(next) {}

  void token(std::string_view text) override {
    std::string out;
    std::size_t copied = 0;
    if (!text.empty()) {
      step_.pattern.for_each_match(text, [&](std::size_t start, std::size_t end) {
        out.append(text, copied, start - copied).append(step_.content);
        copied = end;
      });
    }
    next_.token(out.append(text, copied));
  }
  void end() override { next_.end(); }

 private:
  const ReplaceStep& step_;
  TokenSink& next_;
};

// The byte that "<0x0A>" stands for; nullopt for any other token. Rust's number parser, which the
// original uses, also takes "+A".
std::optional<char> parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]);
  const int low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

class ByteFallbackSink final : public TokenSink {
 public:
  explicit ByteFallbackSink(TokenSink& next) : next_(next) {}

  void token(std::string_view text) override {
    if (const auto byte = parse_byte_token(text)) {
      bytes_.push_back(*byte);
      return;
    }
    flush();
    next_.token(text);
  }
  void end() override {
    flush();
    next_.end();
  }

 private:
  void flush() {
    if (bytes_.empty()) return;
    if (!find_invalid_utf8(bytes_)) {
      next_.token(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) next_.token(kReplacementCharacter);
    }
    bytes_.clear();
  }

  TokenSink& next_;
  std::string bytes_;
};

// Strips each token; with `fused`, all the tokens are parts of one.
class StripSink final : public TokenSink {
 public:
  StripSink(const StripStep& step, bool fused, TokenSink& next)
      : step_(step), fused_(fused), next_(next), to_strip_(step.start) {
    append_utf8(content_, step.content);
  }

  void token(std::string_view text) override {
    while (to_strip_ > 0 && !text.empty()) {
      to_strip_ = text.starts_with(content_) ? to_strip_ - 1 : 0;
      if (text.starts_with(content_)) text.remove_prefix(content_.size());
    }
    held_.append(text);
    if (fused_) {
      // Only the last few may yet turn out to be the end.
      const std::size_t keep = trailing();
      pass_on(held_.size() - keep);
    } else {
      held_.resize(held_.size() - trailing());
      pass_on(held_.size());
      to_strip_ = step_.start;
    }
  }
  void end() override {
    held_.clear();
    next_.end();
  }

 private:
  // The bytes at the end of held_ that a `stop` strips.
  std::size_t trailing() const {
    std::size_t size = 0;
    const std::string_view held = held_;
    for (std::size_t i = 0; i < step_.stop; ++i) {
      if (!held.substr(0, held.size() - size).ends_with(content_)) break;
      size += content_.size();
    }
    return size;
  }
  void pass_on(std::size_t size) {
    next_.token(std::string_view(held_).substr(0, size));
    held_.erase(0, size);
  }

  const StripStep& step_;
  bool fused_;
  TokenSink& next_;
  std::string content_;
  std::string held_;
  std::size_t to_strip_;
};

class MetaspaceSink final : public TokenSink {
 public:
  MetaspaceSink(const MetaspaceStep& step, bool fused, TokenSink& next)
      : step_(step), fused_(fused), next_(next) {}

  void token(std::string_view text) override {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = decode_at(text, at);
      if (c.value != step_.replacement) {
        out.append(text, at, c.size);
      } else if (!first_ || !step_.drop_in_first) {
        out.push_back(' ');
      }
      at += c.size;
    }
    first_ = fused_;
    next_.token(out);
  }
  void end() override { next_.end(); }

 private:
  const MetaspaceStep& step_;
  bool fused_;
  TokenSink& next_;
  bool first_ = true;
};

class JoinSink final : public TokenSink {
 public:
  explicit JoinSink(TokenSink& next) : next_(next) {}
  void token(std::string_view text) override {
    if (!std::exchange(first_, false)) next_.token(" ");
    next_.token(text);
  }
  void end() override { next_.end(); }

 private:
  TokenSink& next_;
  bool first_ = true;
};

// Puts the parts of a fused token together for a step that needs all of it.
class WholeSink final : public TokenSink {
 public:
  explicit WholeSink(TokenSink& next) : next_(next) {}
  void token(std::string_view text) override { text_.append(text); }
  void end() override {
    next_.token(text_);
    next_.end();
  }

 private:
  TokenSink& next_;
  std::string text_;
};

class PassSink final : public TokenSink {
 public:
  explicit PassSink(TokenSink& next) : next_(next) {}
  void token(std::string_view text) override { next_.token(text); }
  void end() override { next_.end(); }

 private:
  TokenSink& next_;
};

struct MakeSink {
  bool fused;
  TokenSink& next;

  std::unique_ptr<TokenSink> operator()(const ByteLevelStep&) const {
    return std::make_unique<ByteLevelSink>(next);
  }
  std::unique_ptr<TokenSink> operator()(const ReplaceStep& step) const {
    return std::make_unique<ReplaceSink>(step, next);
  }
  std::unique_ptr<TokenSink> operator()(const ByteFallbackStep&) const {
    return std::make_unique<ByteFallbackSink>(next);
  }
  std::unique_ptr<TokenSink> operator()(const FuseStep&) const {
    return std::make_unique<PassSink>(next);
  }
  std::unique_ptr<TokenSink> operator()(const StripStep& step) const {
    return std::make_unique<StripSink>(step, fused, next);
  }
  std::unique_ptr<TokenSink> operator()(const MetaspaceStep& step) const {
    return std::make_unique<MetaspaceSink>(step, fused, next);
  }
  std::unique_ptr<TokenSink> operator()(const JoinStep&) const {
    return std::make_unique<JoinSink>(next);
  }
};

template <typename Step>
bool is(const DecoderStep& step) {
  return std::holds_alternative<Step>(step);
}

}  // namespace

Decoder::Decoder(const std::optional<JsonField>& field) {
  if (field) {
    add_steps(*field);
  } else {
    steps_.emplace_back(JoinStep{});
  }
}

void Decoder::add_steps(const JsonField& field) {
  constexpr std::size_t kMaxStrip = std::numeric_limits<std::uint32_t>::max();
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field.at("decoders").items()) add_steps(item);
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevelStep{});
  } else if (type == "Replace") {
    const JsonField pattern = field.at("pattern");
    const auto literal = pattern.find("String");
    const JsonField regex = literal ? *literal : pattern.at("Regex");
    steps_.emplace_back(ReplaceStep{literal ? Regex::from_literal(regex.as_string(), regex.path())
                                            : Regex(regex.as_string(), regex.path()),
                                    field.at("content").as_string()});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallbackStep{});
  } else if (type == "Fuse") {
    steps_.emplace_back(FuseStep{});
  } else if (type == "Strip") {
    steps_.emplace_back(StripStep{field.at("content").as_code_point(),
                                  field.at("start").as_size(kMaxStrip),
                                  field.at("stop").as_size(kMaxStrip)});
  } else if (type == "Metaspace") {
    const auto scheme = field.find("prepend_scheme");
    const bool never =
        (scheme && scheme->as_string() == "never") || !field.bool_or("add_prefix_space", true);
    steps_.emplace_back(MetaspaceStep{field.at("replacement").as_code_point(), !never});
  } else {
    field.unsupported(type,
                      "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence");
  }
}

std::string Decoder::bytes_within(std::string_view token) const {
  for (const DecoderStep& step : steps_) {
    if (is<ByteLevelStep>(step)) {
      std::string bytes;
      append_spelled(token, bytes);
      return bytes;
    }
    if (!is<ByteFallbackStep>(step)) continue;
    if (const auto byte = parse_byte_token(token)) return {*byte};
  }
  // What comes first in a text may be stripped: so it is not the first.
  DecoderChain chain(*this);
  std::string before;
  chain.push("a", before);
  std::string text;
  chain.push(token, text);
  chain.finish(text);
  return text;
}

class DecoderChain::Collector final : public TokenSink {
 public:
  void token(std::string_view text) override { out_->append(text); }
  void end() override {}
  void collect_into(std::string& out) { out_ = &out; }

 private:
  std::string* out_ = nullptr;
};

DecoderChain::DecoderChain(const Decoder& decoder) : decoder_(decoder) {
  build();
}

void DecoderChain::build() {
  sinks_.clear();
  auto collector = std::make_unique<Collector>();
  collector_ = collector.get();
  sinks_.push_back(std::move(collector));
  const std::vector<DecoderStep>& steps = decoder_.steps();
  std::size_t fuses = 0;  // the first step that makes one token of all
  while (fuses < steps.size() && !is<FuseStep>(steps[fuses]) && !is<ByteLevelStep>(steps[fuses])) {
    ++fuses;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    const bool fused = i > fuses;
    sinks_.push_back(std::visit(MakeSink{fused, *sinks_.back()}, steps[i]));
    const bool takes_parts =
        is<FuseStep>(steps[i]) || is<StripStep>(steps[i]) || is<MetaspaceStep>(steps[i]);
    if (fused && !takes_parts) sinks_.push_back(std::make_unique<WholeSink>(*sinks_.back()));
  }
}

void DecoderChain::push(std::string_view token, std::string& out) {
  collector_->collect_into(out);
  sinks_.back()->token(token);
}

void DecoderChain::finish(std::string& out) {
  collector_->collect_into(out);
  sinks_.back()->end();
  build();
}

}  // namespace quire::tokenizer_internal
