#include "hub/hub_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/mapped_file.h"
#include "hub/environment.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
using hub_internal::environment;
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr int kMaxStallTimeout = 3600;

void strip(std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  text.erase(text.find_last_not_of(kSpace) + 1);
}

// A token goes into a header, where a line feed would begin another one.
std::string checked_token(std::string token, const std::string& where) {
  strip(token);
  const bool plain =
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain || token.size() > kMaxTokenBytes) {
    throw Error(where + ": expected an access token of the hub, one word of ASCII.");
  }
  return token;
}

std::string find_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto token = environment(name)) return checked_token(*token, name);
  }
  const auto named = environment("HF_TOKEN_PATH");
  const fs::path file =
      named ? hub_internal::expand_home(*named) : hub_internal::hugging_face_home() / "token";
  std::error_code error;
  if (!fs::exists(file, error)) return "";
  return checked_token(read_text_file(file, kMaxTokenBytes), file.string());
}

std::string find_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT").value_or(HubSettings().endpoint);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const size_t scheme = endpoint.starts_with("https://")  ? 8
                        : endpoint.starts_with("http://") ? 7
                                                          : 0;
  const bool plain = std::all_of(endpoint.begin(), endpoint.end(), [](unsigned char c) {
    return c > 0x20 && c < 0x7f && c != '@' && c != '?' && c != '#';
  });
  if (scheme == 0 || endpoint.size() == scheme || !plain) {
    throw Error(
        "HF_ENDPOINT: expected the address of a hub, such as https://huggingface.co, without a "
        "user's name or a query.");
  }
  return endpoint;
}

int find_stall_timeout() {
  const auto text = environment("HF_HUB_DOWNLOAD_TIMEOUT");
  if (!text) return HubSettings().stall_timeout_s;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (error != std::errc() || end != text->data() + text->size() || seconds < 1 ||
      seconds > kMaxStallTimeout) {
    throw Error(fmt::format("HF_HUB_DOWNLOAD_TIMEOUT: expected seconds from 1 to {}, got '{}'.",
                            kMaxStallTimeout, *text));
  }
  return seconds;
}

}  // namespace

HubSettings hub_settings_from_environment() {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    if (hub_internal::environment_switch(name)) {
      throw Error(fmt::format("{} is set, so nothing may be downloaded; unset it to pull.", name));
    }
  }
  HubSettings settings;
  settings.endpoint = find_endpoint();
  settings.token = find_token();
  settings.stall_timeout_s = find_stall_timeout();
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    if (const auto file = environment(name); file && settings.ca_file.empty()) {
      settings.ca_file = *file;
    }
  }
  return settings;
}

}  // namespace quire
