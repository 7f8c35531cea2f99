#pragma once
// The keys that open the API.
//
// Only digests are kept. Each request is compared with all of them in constant time, so that the
// time of a refusal tells nothing about any key.
//
// Thread safety: immutable once made.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

class ApiKeys {
 public:
  // No keys: every request is accepted. Throws Error for an empty key.
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool required() const { return !digests_.empty(); }

  // Whose request it is, from its Authorization header ("Bearer KEY"): the digest of the key in
  // hexadecimal; empty where no keys are required. Nothing: it must be refused.
  std::optional<std::string> owner_of(std::optional<std::string_view> authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;  // SHA-256
  static Digest digest_of(std::string_view key);
  std::vector<Digest> digests_;
};

// One key a line; blank lines and lines that begin with # are passed over. Throws Error naming the
// file where it cannot be read or holds no key.
std::vector<std::string> read_api_key_file(const std::string& path);

}  // namespace quire::server
