#include "hub/environment.h"

#include <algorithm>
#include <cstdlib>

namespace quire::hub_internal {
namespace fs = std::filesystem;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

bool environment_switch(const char* name) {
  std::string value = environment(name).value_or("");
  std::transform(value.begin(), value.end(), value.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path expand_home(const std::string& path) {
  const fs::path home = environment("HOME").value_or("/");
  if (path == "~") return home;
  if (path.starts_with("~/")) return home / path.substr(2);
  return path;
}

fs::path hugging_face_home() {
  if (const auto home = environment("HF_HOME")) return expand_home(*home);
  if (const auto cache = environment("XDG_CACHE_HOME")) {
    return expand_home(*cache) / "huggingface";
  }
  return expand_home("~") / ".cache" / "huggingface";
}

}  // namespace quire::hub_internal
