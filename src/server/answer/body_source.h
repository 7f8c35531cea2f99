#pragma once
// A body that is made piece by piece, as the client takes it.
//
// Thread safety: one thread at a time, which may be another for each call.
#include <cstddef>
#include <string>

namespace quire::server {

class BodySource {
 public:
  // A piece has at least so many bytes, and little more, but for the last.
  static constexpr size_t kPieceBytes = 256 << 10;

  virtual ~BodySource() = default;
  virtual bool more_follows() const = 0;
  // What it is made of is freed as it goes. Requires more_follows().
  virtual std::string next_piece() = 0;
};

}  // namespace quire::server
