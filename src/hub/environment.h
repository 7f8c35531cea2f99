#pragma once
// The environment variables that Hugging Face's tools read, as they read them.
//
// Thread safety: free functions; they read the environment.
#include <filesystem>
#include <optional>
#include <string>

namespace quire::hub_internal {

// The value of a variable; nothing where it is unset or empty.
std::optional<std::string> environment(const char* name);

// True for 1, on, yes and true in any case, as huggingface_hub reads a switch.
bool environment_switch(const char* name);

// As Python's expanduser, for the forms that make sense in these variables: "~" and "~/...".
std::filesystem::path expand_home(const std::string& path);

// $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::filesystem::path hugging_face_home();

}  // namespace quire::hub_internal
