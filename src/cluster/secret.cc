#include "cluster/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "quire/error.h"

namespace quire::cluster {
namespace {

unsigned char* as_uchar(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

const unsigned char* as_uchar(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require(bool ok) {
  if (!ok) throw Error("OpenSSL cannot encrypt what nodes send each other.");
}

}  // namespace

Nonce draw_nonce() {
  Nonce nonce{};
  if (RAND_bytes(as_uchar(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw Error("The system gives no random numbers, which a group of nodes needs.");
  }
  return nonce;
}

Transcript::Transcript(std::string secret, std::span<const std::byte> hello,
                       std::span<const std::byte> challenge)
    : secret_(std::move(secret)),
      said_(std::string(as_text(hello)) + std::string(as_text(challenge))) {}

Digest Transcript::digest(std::string_view purpose) const {
  const std::string text = std::string(purpose) + '\n' + said_;
  Digest digest{};
  unsigned int length = 0;
  const auto* result = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            as_uchar(digest.data()), &length);
  require(result != nullptr && length == digest.size());
  return digest;
}

Digest Transcript::proof_of_node() const {
  return digest("quire: a node to node 0");
}
Digest Transcript::proof_of_node_0() const {
  return digest("quire: node 0 to a node");
}
Digest Transcript::key_to_node() const {
  return digest("quire: key from node 0");
}
Digest Transcript::key_to_node_0() const {
  return digest("quire: key to node 0");
}

bool is_same(std::span<const std::byte> given, const Digest& expected) {
  return given.size() == expected.size() &&
         CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
}

struct Sealer::Context {
  EVP_CIPHER_CTX* evp = EVP_CIPHER_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_CIPHER_CTX_free(evp); }
};

Sealer::Sealer(const Digest& key, Way way) : context_(std::make_unique<Context>()) {
  require(context_->evp != nullptr &&
          EVP_CipherInit_ex(context_->evp, EVP_aes_256_gcm(), nullptr, as_uchar(key.data()),
                            nullptr, way == Way::kSeal ? 1 : 0) == 1);
}

Sealer::~Sealer() = default;

void Sealer::start(std::span<const std::byte> head) {
  std::array<unsigned char, 12> nonce{};
  for (size_t i = 0; i < sizeof(count_); ++i) {
    nonce.at(i) = static_cast<unsigned char>(count_ >> (8 * i));
  }
  ++count_;
  int length = 0;
  require(EVP_CipherInit_ex(context_->evp, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
          EVP_CipherUpdate(context_->evp, nullptr, &length, as_uchar(head.data()),
                           static_cast<int>(head.size())) == 1);
}

void Sealer::update(std::span<std::byte> payload) {
  if (payload.empty()) return;
  int length = 0;
  require(EVP_CipherUpdate(context_->evp, as_uchar(payload.data()), &length,
                           as_uchar(payload.data()), static_cast<int>(payload.size())) == 1);
}

void Sealer::seal(std::span<const std::byte> head, std::span<std::byte> payload,
                  std::span<std::byte, kTagBytes> tag) {
  start(head);
  update(payload);
  std::array<unsigned char, 16> rest{};
  int length = 0;
  require(EVP_CipherFinal_ex(context_->evp, rest.data(), &length) == 1 &&
          EVP_CIPHER_CTX_ctrl(context_->evp, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1);
}

bool Sealer::open(std::span<const std::byte> head, std::span<std::byte> payload,
                  std::span<const std::byte, kTagBytes> tag) {
  start(head);
  update(payload);
  std::array<std::byte, kTagBytes> expected{};
  std::copy(tag.begin(), tag.end(), expected.begin());
  std::array<unsigned char, 16> rest{};
  int length = 0;
  return EVP_CIPHER_CTX_ctrl(context_->evp, EVP_CTRL_GCM_SET_TAG, kTagBytes, expected.data()) ==
             1 &&
         EVP_CipherFinal_ex(context_->evp, rest.data(), &length) == 1;
}

}  // namespace quire::cluster
