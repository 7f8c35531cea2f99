#pragma once
// Where a model named on the command line or in a config lies: a folder or file, the local Hugging
// Face cache, or the model that comes with quire. Nothing is downloaded.
//
// Thread safety: free functions; they read the environment.
#include <filesystem>
#include <string>
#include <string_view>

#include "quire/bundled_model.h"

namespace quire {

// The folder of `model`: a folder that exists, else the snapshot that refs/main names of a
// repository ("org/name" or "name") in the local Hugging Face cache. Or its GGUF file: a .gguf file
// that exists, what "org/name:Q4_K_M" or "folder:Q4_K_M" names (hub/gguf_choice.h), or the one that
// a folder holds in place of a config.json. Throws Error saying what was looked for and where, for
// another file, and for a folder that holds neither a config.json, a tokenizer.json nor a GGUF
// file.
std::filesystem::path resolve_model(const std::string& model);

// The root of the local Hugging Face cache, as huggingface_hub chooses it: $HF_HUB_CACHE, else
// $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. A variable that is empty counts as unset. It need not exist.
std::filesystem::path hub_cache_folder();

namespace hub_internal {

// Whether it is "org/name" or "name", as a repository on the hub is called.
bool is_repository_name(std::string_view model);

// The repository's folder in the cache: "models--org--name".
std::string repository_folder_name(const std::string& model);

// bundled_model() for quire installed in `prefix` and built from `source_folder`.
std::filesystem::path find_bundled_model(const std::filesystem::path& prefix,
                                         const std::filesystem::path& source_folder);

}  // namespace hub_internal
}  // namespace quire
