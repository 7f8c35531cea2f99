#pragma once
// The files beside the weights when a model is made from another one.
//
// Thread safety: free functions of their arguments and the files.
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Throws Error where the file cannot be written.
void write_text_file(const std::filesystem::path& path, std::string_view text);

// The folder's config.json.
nlohmann::ordered_json read_config(const std::filesystem::path& folder);
// Writes it as `edit` changes it.
void rewrite_config(const std::filesystem::path& source, const std::filesystem::path& out,
                    const std::function<void(nlohmann::ordered_json& config)>& edit);

// Copies the tokenizer, chat templates, generation config, licences: every file of the folder
// except weights, configs of quantisations, the model card and hidden files. Of sub-folders it
// copies additional_chat_templates. A link becomes a copy of its target. Returns the names that the
// caller may miss: everything left out except safetensors, config.json and hidden files. Throws
// Error where a file cannot be copied, for instance a link without a target.
std::vector<std::string> copy_texts(const std::filesystem::path& source,
                                    const std::filesystem::path& out);

}  // namespace quire
