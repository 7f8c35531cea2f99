#pragma once
// A body that is made piece by piece, as the client takes it.
//
// Thread safety: one thread at a time, which may be another for each call.
#include <cstddef>
#include <string>

namespace quire::server {

class BodySource {
 public:
  // Every piece except the last has at least this many bytes, and little more.
  static constexpr size_t kPieceBytes = 256 << 10;

  virtual ~BodySource() = default;
  virtual bool more_follows() const = 0;
  // Frees what a piece was made from. Requires more_follows().
  virtual std::string next_piece() = 0;
};

}  // namespace quire::server
