#include "hub/content_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "quire/error.h"

namespace quire {

std::string_view ContentId::algorithm() const {
  return kind == Kind::kSha256 ? "SHA-256" : "git SHA-1";
}

struct ContentHash::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> digest{EVP_MD_CTX_new()};
};

namespace {

// OpenSSL refuses what its configuration forbids, SHA-1 perhaps.
void require(bool done) {
  if (!done) throw Error("OpenSSL refuses to compute a hash that the hub's files need.");
}

}  // namespace

ContentHash::ContentHash(ContentId::Kind kind, int64_t size)
    : context_(std::make_unique<Context>()) {
  const EVP_MD* algorithm = kind == ContentId::Kind::kSha256 ? EVP_sha256() : EVP_sha1();
  require(context_->digest != nullptr &&
          EVP_DigestInit_ex(context_->digest.get(), algorithm, nullptr) == 1);
  if (kind == ContentId::Kind::kGitBlob) {
    const std::string header = fmt::format("blob {}", size);
    update(std::string_view(header.c_str(), header.size() + 1));  // with its zero byte
  }
}

ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;

void ContentHash::update(std::string_view bytes) {
  require(EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()) == 1);
}

std::string ContentHash::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  require(EVP_DigestFinal_ex(context_->digest.get(), bytes.data(), &size) == 1);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace quire
