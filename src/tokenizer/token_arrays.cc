#include "tokenizer/token_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "quire/error.h"
#include "tokenizer/arrays_reader.h"
#include "tokenizer/merge_reader.h"
#include "tokenizer/score_merges.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word_patterns.h"

namespace quire {
namespace tokenizer_internal {
namespace {

using nlohmann::json;

constexpr std::string_view kGpt2Kind = "gpt2";
constexpr std::string_view kLlamaKind = "llama";

// Makes of arrays what tokenizer.json is read into.
class ArraysReader {
 public:
  explicit ArraysReader(const TokenArrays& arrays) : arrays_(arrays) {}

  ReadArrays run() {
    check_sizes();
    read_tokens();
    if (arrays_.kind == kGpt2Kind) {
      read_gpt2();
    } else {
      read_llama();
    }
    return {std::move(file_), std::move(config_)};
  }

 private:
  void check_sizes() const {
    if (arrays_.kind != kGpt2Kind && arrays_.kind != kLlamaKind) {
      throw Error(fmt::format("the tokenizer is of the kind \"{}\"; supported are gpt2 and llama.",
                              arrays_.kind.substr(0, 60)));
    }
    const size_t size = arrays_.tokens.size();
    if (size == 0 || size > static_cast<size_t>(Vocabulary::kMaxId)) {
      throw Error(fmt::format("there are {} tokens; expected 1 to {}.", size, Vocabulary::kMaxId));
    }
    const auto check_size = [&](const char* what, size_t found) {
      if (found == size) return;
      throw Error(
          fmt::format("there are {} {} for {} tokens; expected one for each.", found, what, size));
    };
    if (!arrays_.kinds.empty()) check_size("kinds", arrays_.kinds.size());
    if (arrays_.kind == kLlamaKind) check_size("scores", arrays_.scores.size());
  }

  TokenKind kind_of(size_t id) const {
    if (!arrays_.kinds.empty()) return static_cast<TokenKind>(arrays_.kinds[id]);
    const auto token = static_cast<std::int32_t>(id);
    const bool is_end = token == arrays_.bos_id || token == arrays_.eos_id;
    return is_end ? TokenKind::kControl : TokenKind::kNormal;
  }

  void read_tokens() {
    for (size_t i = 0; i < arrays_.tokens.size(); ++i) {
      const std::string_view token = arrays_.tokens[i];
      const auto id = static_cast<std::int32_t>(i);
      const TokenKind kind = kind_of(i);
      if (kind < TokenKind::kNormal || kind > TokenKind::kByte) {
        throw Error(fmt::format("token {} is of the kind {}; expected 1 to 6.", i,
                                static_cast<std::int32_t>(kind)));
      }
      if (kind == TokenKind::kUnused) continue;
      if (find_invalid_utf8(token)) throw Error(fmt::format("token {} is no valid UTF-8.", i));
      if (file_.vocabulary.add(token, id) != Vocabulary::Added::kYes) {
        throw Error(fmt::format("the token \"{}\" has two ids: {} and {}.", token.substr(0, 100),
                                file_.vocabulary.find(token), i));
      }
      if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
          kind == TokenKind::kUnknown) {
        add_special(token, id, kind);
      }
    }
    config_.bos_token = token_of("bos", arrays_.bos_id);
    config_.eos_token = token_of("eos", arrays_.eos_id);
  }

  void add_special(std::string_view token, std::int32_t id, TokenKind kind) {
    if (token.empty()) return;
    AddedToken added;
    added.id = id;
    added.content = token;
    added.special = kind != TokenKind::kUserDefined;
    added.rstrip = kind == TokenKind::kControl && arrays_.strips_after_control &&
                   id != arrays_.bos_id && id != arrays_.eos_id;
    file_.added_tokens.push_back(std::move(added));
  }

  std::string token_of(const char* what, std::optional<std::int32_t> id) const {
    if (!id) return "";
    if (*id < 0 || static_cast<size_t>(*id) >= arrays_.tokens.size()) {
      throw Error(fmt::format("the {} token's id is {}; expected 0 to {}.", what, *id,
                              arrays_.tokens.size() - 1));
    }
    return std::string(arrays_.tokens[static_cast<size_t>(*id)]);
  }

  void read_gpt2() {
    WordPattern pattern = word_pattern(arrays_.pattern);
    file_.normalizer = std::move(pattern.normalizer);
    file_.pre_tokenizer = std::move(pattern.pre_tokenizer);
    file_.decoder = {{"type", "ByteLevel"}};
    file_.options.ignore_merges = pattern.ignore_merges;
    set_flags(pattern.adds_bos);
    MergeReader merges(file_.vocabulary, file_.merges, [this](const UnknownMerge& merge) {
      throw Error(fmt::format("merge {} is \"{}\", but \"{}\" is no token.", merge.rank,
                              arrays_.merges[merge.rank].substr(0, 100),
                              merge.missing.substr(0, 100)));
    });
    for (size_t i = 0; i < arrays_.merges.size(); ++i) read_merge(i, merges);
    merges.finish();
  }

  void read_merge(size_t rank, MergeReader& merges) const {
    const std::string_view line = arrays_.merges[rank];
    // The left token is never empty, nor is a space a part of one.
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) {
      throw Error(fmt::format("merge {} is \"{}\"; expected two tokens with a space between them.",
                              rank, line.substr(0, 100)));
    }
    merges.add(line.substr(0, space), line.substr(space + 1), static_cast<std::uint32_t>(rank), 0);
  }

  void read_llama() {
    json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMarker}};
    json decoders =
        json::array({{{"type", "Replace"}, {"pattern", {{"String", kMarker}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}});
    if (arrays_.add_space_prefix.value_or(true)) {
      const json prepend = {{"type", "Prepend"}, {"prepend", kMarker}};
      file_.normalizer = {{"type", "Sequence"},
                          {"normalizers", json::array({prepend, std::move(replace)})}};
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    } else {
      file_.normalizer = std::move(replace);
    }
    file_.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
    set_flags(/*adds_bos=*/true);
    BpeOptions& options = file_.options;
    options.fuse_unk = true;
    options.byte_fallback = true;
    options.unk_id = unknown_id();
    std::vector<bool> joins(arrays_.tokens.size());
    for (size_t i = 0; i < joins.size(); ++i) joins[i] = kind_of(i) == TokenKind::kNormal;
    const bool crosses_marker =
        add_score_merges(file_.vocabulary, joins, arrays_.scores, file_.merges);
    options.splits_before_marker =
        !crosses_marker && file_.vocabulary.find(kMarker) != Vocabulary::kNone;
  }

  std::int32_t unknown_id() const {
    if (arrays_.unknown_id) return file_.vocabulary.find(token_of("unknown", arrays_.unknown_id));
    for (size_t i = 0; i < arrays_.tokens.size(); ++i) {
      if (kind_of(i) == TokenKind::kUnknown) return static_cast<std::int32_t>(i);
    }
    return Vocabulary::kNone;
  }

  void set_flags(bool adds_bos) {
    config_.add_bos_token = arrays_.add_bos.value_or(adds_bos && arrays_.bos_id.has_value());
    config_.add_eos_token = arrays_.add_eos.value_or(false);
  }

  const TokenArrays& arrays_;
  TokenizerFile file_;
  TokenizerConfig config_;
};

}  // namespace

ReadArrays read_arrays(const TokenArrays& arrays) {
  return ArraysReader(arrays).run();
}

Tokenizer TokenizerMaker::make(std::shared_ptr<const TokenizerState> state) {
  return Tokenizer(std::move(state));
}

}  // namespace tokenizer_internal

Tokenizer make_tokenizer(const TokenArrays& arrays) {
  auto [file, config] = tokenizer_internal::read_arrays(arrays);
  return tokenizer_internal::TokenizerMaker::make(
      std::make_shared<const tokenizer_internal::TokenizerState>(std::move(file), config));
}

}  // namespace quire
