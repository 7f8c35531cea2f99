#pragma once
// The hashes that name a file's content on the hub, computed while it streams by.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quire {

// What names a file's content, in lower-case hexadecimal: large files are named by their SHA-256,
// small ones as git names them.
struct ContentId {
  enum class Kind { kSha256, kGitBlob };
  Kind kind = Kind::kSha256;
  std::string hex;

  // "SHA-256" or "git SHA-1", for messages.
  std::string_view algorithm() const;
  bool operator==(const ContentId&) const = default;
};

class ContentHash {
 public:
  // `size` is the content's, which git hashes before it.
  ContentHash(ContentId::Kind kind, int64_t size);
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;

  void update(std::string_view bytes);
  // The hash of all that was given, in lower-case hexadecimal. Nothing may be given afterwards.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace quire
