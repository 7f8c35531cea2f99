#pragma once
// The chunked transfer coding of RFC 9112, 7.1, byte by byte: chunks in, the body out. Extensions
// and trailers are checked for what may not stand in a line, and dropped.
//
// Beast's own decoder is not used: that of Boost 1.74 aborts, where assertions are on, when the
// last chunk arrives in pieces of fewer than five bytes.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::http {

class ChunkDecoder {
 public:
  enum class Result { kMore, kDone, kMalformed, kTooLong };

  // The most bytes of a size line, and of all trailers together: no real client needs more.
  static constexpr std::size_t kMaxLineBytes = 4 << 10;

  explicit ChunkDecoder(std::size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Takes bytes off the front of `bytes`, all of them or up to the body's end, and appends the
  // body's part of them to `body`. kTooLong: as soon as a size line announces more than the limit.
  Result feed(std::string_view& bytes, std::string& body);

 private:
  enum class State {
    kFirstDigit,
    kSize,
    kExtension,
    kSizeEnd,  // behind the CR of a size line
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailer,
    kTrailerEnd,
    kLastLf,
    kDone,
  };

  Result step(char c);
  Result read_digit(char c);
  Result read_size_line(char c);
  Result read_trailers(char c);
  Result enter(State state) {
    state_ = state;
    return Result::kMore;
  }

  const std::size_t max_body_bytes_;
  State state_ = State::kFirstDigit;
  std::uint64_t remaining_ = 0;  // of the chunk
  std::size_t announced_ = 0;    // of all chunks before
  std::size_t line_bytes_ = 0;
};

}  // namespace quire::http
