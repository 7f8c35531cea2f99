#include "tokenizer/tokenizer_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/arrays_reader.h"

namespace quire {
namespace {

using tokenizer_internal::AddedToken;
using tokenizer_internal::MergeTable;
using tokenizer_internal::ReadArrays;
using tokenizer_internal::TokenizerConfig;
using tokenizer_internal::TokenizerFile;
using tokenizer_internal::Vocabulary;
using Json = nlohmann::ordered_json;

Json vocabulary_json(const Vocabulary& vocabulary) {
  Json json = Json::object();
  // Not through operator[], which looks each new key up among all that are there.
  auto& tokens = json.get_ref<Json::object_t&>();
  for (std::int32_t id = 0; id < vocabulary.end_id(); ++id) {
    if (vocabulary.has(id)) tokens.emplace_back(std::string(vocabulary.text(id)), id);
  }
  return json;
}

Json merges_json(const Vocabulary& vocabulary, const MergeTable& merges) {
  std::vector<MergeTable::Entry> entries = merges.entries();
  std::ranges::sort(entries, {}, [](const auto& entry) { return entry.merge.rank; });
  Json json = Json::array();
  for (const auto& [left, right, merge] : entries) {
    json.push_back({vocabulary.text(left), vocabulary.text(right)});
  }
  return json;
}

Json model_json(const TokenizerFile& file) {
  Json json = {{"type", "BPE"},
               {"dropout", nullptr},
               {"unk_token", nullptr},
               {"continuing_subword_prefix", nullptr},
               {"end_of_word_suffix", nullptr},
               {"fuse_unk", file.options.fuse_unk},
               {"byte_fallback", file.options.byte_fallback},
               {"ignore_merges", file.options.ignore_merges}};
  if (file.options.unk_id != Vocabulary::kNone) {
    json["unk_token"] = file.vocabulary.text(file.options.unk_id);
  }
  json["vocab"] = vocabulary_json(file.vocabulary);
  json["merges"] = merges_json(file.vocabulary, file.merges);
  return json;
}

Json added_json(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

// BOS and EOS around a text, as tokenizer_config.json has quire add them, for other readers; null
// where none is added.
Json post_processor_json(const TokenizerFile& file, const TokenizerConfig& config) {
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](bool is_added, const std::string& token) {
    const std::int32_t id = file.vocabulary.find(token);
    if (!is_added || id == Vocabulary::kNone) return;
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    special[token] = {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
  };
  add(config.add_bos_token.value_or(false), config.bos_token);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(config.add_eos_token.value_or(false), config.eos_token);
  if (special.empty()) return nullptr;
  Json pair = single;
  for (const Json& part : single) {
    Json second = part;
    Json& named = second.begin().value();
    named["type_id"] = 1;
    if (second.contains("Sequence")) named["id"] = "B";
    pair.push_back(std::move(second));
  }
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json config_json_of(const TokenizerConfig& config) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"clean_up_tokenization_spaces", false}};
  const auto set = [&json](const char* field, const auto& value) { json[field] = value; };
  if (!config.bos_token.empty()) set("bos_token", config.bos_token);
  if (!config.eos_token.empty()) set("eos_token", config.eos_token);
  if (config.add_bos_token) set("add_bos_token", *config.add_bos_token);
  if (config.add_eos_token) set("add_eos_token", *config.add_eos_token);
  return json;
}

}  // namespace

TokenizerTexts tokenizer_texts(const TokenArrays& arrays) {
  const auto [file, config] = tokenizer_internal::read_arrays(arrays);
  Json added = Json::array();
  for (const AddedToken& token : file.added_tokens) added.push_back(added_json(token));
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", Json(file.normalizer)},
                     {"pre_tokenizer", Json(file.pre_tokenizer)},
                     {"post_processor", post_processor_json(file, config)},
                     {"decoder", Json(file.decoder)},
                     {"model", model_json(file)}};
  return {json.dump(), config_json_of(config).dump(2) + "\n"};
}

}  // namespace quire
