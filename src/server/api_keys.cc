#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/lower_case.h"
#include "quire/error.h"
#include "server/setting_file.h"

namespace quire::server {
namespace {

// The token of "Bearer TOKEN", the scheme in any case; empty where it is another.
std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!same_in_lower_case(authorization.substr(0, kScheme.size()), kScheme)) return {};
  const size_t begin = authorization.find_first_not_of(' ', kScheme.size());
  if (begin == std::string_view::npos) return {};
  const size_t end = authorization.find_last_not_of(' ');
  return authorization.substr(begin, end - begin + 1);
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (key.empty()) throw Error("An API key is empty; expected at least one character.");
    digests_.push_back(digest_of(key));
  }
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::optional<std::string> ApiKeys::owner_of(std::optional<std::string_view> authorization) const {
  if (!required()) return std::string();
  const Digest digest = digest_of(bearer_token(authorization.value_or("")));
  bool known = false;
  for (const Digest& key : digests_) {
    known |= CRYPTO_memcmp(key.data(), digest.data(), digest.size()) == 0;
  }
  if (!known) return std::nullopt;
  std::string owner;
  for (const unsigned char byte : digest) owner += fmt::format("{:02x}", byte);
  return owner;
}

std::vector<std::string> read_api_key_file(const std::string& path) {
  const std::string text = read_setting_file(path, "API key file");
  std::vector<std::string> keys;
  for (size_t next = 0; next < text.size();) {
    const std::string line = text.substr(next, text.find('\n', next) - next);
    next += line.size() + 1;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1));
  }
  if (keys.empty()) {
    throw Error(fmt::format("The API key file {} holds no key; expected one a line.", path));
  }
  return keys;
}

}  // namespace quire::server
