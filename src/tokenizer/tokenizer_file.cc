#include "tokenizer/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "quire/error.h"
#include "tokenizer/json_field.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/merge_reader.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::string_view kFile = "tokenizer.json";

// Reads the object `model`.
class ModelReader {
 public:
  ModelReader(JsonReader& reader, TokenizerFile& file) : reader_(reader), file_(file) {}

  void run() {
    reader_.read_object([&](std::string_view key) {
      if (key == "vocab") {
        read_vocabulary();
      } else if (key == "merges" && !has_vocabulary_) {
        late_merges_ = reader_.raw_value();  // merges are read by looking their tokens up
      } else if (key == "merges") {
        read_merges(reader_);
      } else {
        const std::string name(key);
        small_[name] =
            parse_small_json(reader_.raw_value(), fmt::format("{}: model.{}", kFile, name));
      }
    });
    if (!has_vocabulary_) throw Error("tokenizer.json: model has no field \"vocab\".");
    if (!late_merges_.empty()) {
      JsonReader late(late_merges_, "tokenizer.json: model.merges");
      read_merges(late);
    }
    if (!has_merges_) throw Error("tokenizer.json: model has no field \"merges\".");
    read_options(JsonField(small_, "tokenizer.json: model"));
  }

 private:
  void read_vocabulary() {
    if (has_vocabulary_) reader_.fail("model.vocab occurs a second time");
    has_vocabulary_ = true;
    reader_.read_object([&](std::string_view token) {
      const std::string kept(token);
      const auto id = static_cast<std::int32_t>(reader_.read_integer(Vocabulary::kMaxId));
      const auto added = file_.vocabulary.add(kept, id);
      if (added == Vocabulary::Added::kYes) return;
      reader_.fail(added == Vocabulary::Added::kDuplicateId
                       ? fmt::format("model.vocab gives the id {} to two tokens", id)
                       : fmt::format("model.vocab has the token \"{}\" twice", kept));
    });
  }

  void read_merges(JsonReader& reader) {
    if (has_merges_) reader.fail("model.merges occurs a second time");
    has_merges_ = true;
    MergeReader merges(file_.vocabulary, file_.merges, [&reader](const UnknownMerge& merge) {
      reader.fail_at(merge.place, fmt::format("model.merges joins \"{}\" and \"{}\", but \"{}\" is "
                                              "not in model.vocab",
                                              merge.left, merge.right, merge.missing));
    });
    std::uint32_t rank = 0;
    reader.read_array([&] {
      if (reader.peek() == '[') {
        read_merge_pair(reader, rank++, merges);
      } else {
        read_merge_line(reader, rank, merges);
      }
    });
    merges.finish();
  }

  void read_merge_pair(JsonReader& reader, std::uint32_t rank, MergeReader& merges) {
    std::string parts[2];
    std::size_t count = 0;
    std::string scratch;
    reader.read_array([&] {
      if (count == 2) reader.fail("an entry of model.merges has more than two tokens");
      parts[count++] = reader.read_string(scratch);
    });
    if (count != 2) reader.fail("an entry of model.merges has fewer than two tokens");
    add_merge(reader, parts[0], parts[1], rank, merges);
  }

  void read_merge_line(JsonReader& reader, std::uint32_t& rank, MergeReader& merges) {
    std::string scratch;
    const std::string_view line = reader.read_string(scratch);
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      reader.fail(fmt::format(
          "model.merges has the entry \"{}\"; expected two tokens with one space between them",
          line));
    }
    add_merge(reader, line.substr(0, space), line.substr(space + 1), rank++, merges);
  }

  void add_merge(const JsonReader& reader, std::string_view left, std::string_view right,
                 std::uint32_t rank, MergeReader& merges) {
    const std::string_view joined = merges.add(left, right, rank, reader.at());
    merges_across_marker_ = merges_across_marker_ || has_inner_marker(joined);
  }

  void read_options(const JsonField& model) {
    if (const auto type = model.find("type"); type && type->as_string() != "BPE") {
      type->unsupported(type->as_string(), "BPE");
    }
    if (const auto dropout = model.find("dropout"); dropout && small_["dropout"] != 0.0) {
      dropout->fail("must be null: dropping merges at random is for training");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto field = model.find(affix);
      if (field && !field->as_string().empty()) field->fail("is not supported unless it is empty");
    }
    BpeOptions& options = file_.options;
    options.fuse_unk = model.bool_or("fuse_unk", false);
    options.byte_fallback = model.bool_or("byte_fallback", false);
    options.ignore_merges = model.bool_or("ignore_merges", false);
    options.splits_before_marker = !merges_across_marker_ && !options.ignore_merges &&
                                   file_.vocabulary.find(kMarker) != Vocabulary::kNone;
    if (const auto unk = model.find("unk_token")) {
      options.unk_id = file_.vocabulary.find(unk->as_string());
      if (options.unk_id == Vocabulary::kNone) {
        unk->fail(fmt::format("is \"{}\", which is not in model.vocab", unk->as_string()));
      }
    }
  }

  JsonReader& reader_;
  TokenizerFile& file_;
  nlohmann::json small_ = nlohmann::json::object();
  std::string_view late_merges_;
  bool has_vocabulary_ = false;
  bool has_merges_ = false;
  bool merges_across_marker_ = false;
};

AddedToken read_added_token(const JsonField& field) {
  AddedToken token;
  token.id = static_cast<std::int32_t>(field.at("id").as_size(Vocabulary::kMaxId));
  token.content = field.at("content").as_string();
  token.single_word = field.at("single_word").as_bool();
  token.lstrip = field.at("lstrip").as_bool();
  token.rstrip = field.at("rstrip").as_bool();
  token.normalized = field.at("normalized").as_bool();
  token.special = field.at("special").as_bool();
  return token;
}

// An added token that the model has keeps the model's id; the others are numbered on from the end
// of the vocabulary. The file's ids have to agree, for the library it comes from would renumber
// them.
std::vector<AddedToken> read_added_tokens(const JsonField& field, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, std::int32_t> seen;
  auto next_id = static_cast<std::int32_t>(vocabulary.size());
  for (const JsonField& item : field.items()) {
    AddedToken token = read_added_token(item);
    if (token.content.empty()) continue;
    const std::int32_t in_model = vocabulary.find(token.content);
    const auto earlier = seen.find(token.content);
    const std::int32_t expected = earlier != seen.end()           ? earlier->second
                                  : in_model != Vocabulary::kNone ? in_model
                                                                  : next_id++;
    if (token.id != expected) {
      item.at("id").fail(fmt::format(
          "is {}, but the token \"{}\" must have the id {}: that of model.vocab, or else the next "
          "one after the vocabulary",
          token.id, token.content, expected));
    }
    seen.emplace(token.content, token.id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A token of tokenizer_config.json: a string, an added token's object, or nothing.
std::string read_token_name(const JsonField& config, std::string_view name) {
  const auto field = config.find(name);
  if (!field) return "";
  return field->is_object() ? field->at("content").as_string() : field->as_string();
}

std::optional<bool> read_flag(const JsonField& config, std::string_view name) {
  const auto field = config.find(name);
  return field ? std::optional<bool>(field->as_bool()) : std::nullopt;
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text) {
  TokenizerFile file;
  nlohmann::json added_tokens;
  bool has_model = false;
  JsonReader reader(text, std::string(kFile));
  reader.read_object([&](std::string_view key) {
    const std::string name(key);
    if (name == "model") {
      if (std::exchange(has_model, true)) reader.fail("the field \"model\" occurs a second time");
      ModelReader(reader, file).run();
      return;
    }
    nlohmann::json* part = name == "added_tokens"     ? &added_tokens
                           : name == "normalizer"     ? &file.normalizer
                           : name == "pre_tokenizer"  ? &file.pre_tokenizer
                           : name == "post_processor" ? &file.post_processor
                           : name == "decoder"        ? &file.decoder
                                                      : nullptr;
    const std::string_view value = reader.raw_value();
    if (part != nullptr) *part = parse_small_json(value, fmt::format("{}: {}", kFile, name));
  });
  reader.expect_end();
  if (!has_model) throw Error("tokenizer.json has no field \"model\".");
  if (!added_tokens.is_null()) {
    file.added_tokens =
        read_added_tokens(JsonField(added_tokens, "tokenizer.json: added_tokens"), file.vocabulary);
  }
  return file;
}

TokenizerConfig read_tokenizer_config(std::string_view text) {
  TokenizerConfig config;
  if (text.empty()) return config;
  JsonReader reader(text, "tokenizer_config.json");
  const nlohmann::json document = parse_small_json(reader.raw_value(), "tokenizer_config.json");
  reader.expect_end();
  const JsonField root(document, "tokenizer_config.json:");
  config.bos_token = read_token_name(root, "bos_token");
  config.eos_token = read_token_name(root, "eos_token");
  config.add_bos_token = read_flag(root, "add_bos_token");
  config.add_eos_token = read_flag(root, "add_eos_token");
  return config;
}

}  // namespace quire::tokenizer_internal
