#include "tokenizer/post_processor.h"

#include <string>
#include <utility>

#include "tokenizer/vocabulary.h"

namespace quire::tokenizer_internal {

PostProcessor::PostProcessor(const std::optional<JsonField>& field) {
  if (field) add_steps(*field);
}

PostProcessor::PostProcessor(std::vector<std::int32_t> before, std::vector<std::int32_t> after) {
  parts_.push_back({false, std::move(before)});
  parts_.push_back({true, {}});
  parts_.push_back({false, std::move(after)});
}

void PostProcessor::add_steps(const JsonField& field) {
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field.at("processors").items()) add_steps(item);
  } else if (type == "TemplateProcessing") {
    if (!parts_.empty()) field.fail("is a second TemplateProcessing; one is supported");
    set_template(field);
  } else if (type != "ByteLevel") {  // which only moves offsets
    field.unsupported(type, "TemplateProcessing, ByteLevel and Sequence");
  }
}

void PostProcessor::set_template(const JsonField& field) {
  for (const JsonField& piece : field.at("single").items()) {
    if (const auto sequence = piece.find("Sequence")) {
      const JsonField id = sequence->at("id");
      if (id.as_string() != "A") id.unsupported(id.as_string(), "A, the one text there is");
      parts_.push_back({true, {}});
      continue;
    }
    const std::string& name = piece.at("SpecialToken").at("id").as_string();
    Part part{false, {}};
    for (const JsonField& id : field.at("special_tokens").at(name).at("ids").items()) {
      part.ids.push_back(static_cast<std::int32_t>(id.as_size(Vocabulary::kMaxId)));
    }
    parts_.push_back(std::move(part));
  }
  if (parts_.empty()) field.at("single").fail("must not be empty");
}

std::vector<std::int32_t> PostProcessor::run(std::vector<std::int32_t> ids,
                                             bool add_special_tokens) const {
  if (parts_.empty()) return ids;
  std::vector<std::int32_t> out;
  out.reserve(ids.size() + parts_.size());
  for (const Part& part : parts_) {
    if (!part.is_text && !add_special_tokens) continue;
    const std::vector<std::int32_t>& source = part.is_text ? ids : part.ids;
    out.insert(out.end(), source.begin(), source.end());
  }
  return out;
}

}  // namespace quire::tokenizer_internal
