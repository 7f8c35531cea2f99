#include "http/chunk_decoder.h"

#include <algorithm>

#include "base/hex_digit.h"

namespace quire::http {
namespace {

bool may_stand_in_line(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7f);
}

}  // namespace

ChunkDecoder::Result ChunkDecoder::feed(std::string_view& bytes, std::string& body) {
  while (!bytes.empty() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, bytes.size()));
      body.append(bytes.substr(0, n));
      bytes.remove_prefix(n);
      remaining_ -= n;
      if (remaining_ == 0) state_ = State::kDataCr;
      continue;
    }
    const Result result = step(bytes.front());
    if (result != Result::kMore) return result;
    bytes.remove_prefix(1);
  }
  return state_ == State::kDone ? Result::kDone : Result::kMore;
}

ChunkDecoder::Result ChunkDecoder::step(char c) {
  switch (state_) {
    case State::kFirstDigit:
    case State::kSize:
    case State::kExtension:
    case State::kSizeEnd:
      return ++line_bytes_ > kMaxLineBytes ? Result::kMalformed : read_size_line(c);
    case State::kDataCr:
      return c == '\r' ? enter(State::kDataLf) : Result::kMalformed;
    case State::kDataLf:
      line_bytes_ = 0;
      return c == '\n' ? enter(State::kFirstDigit) : Result::kMalformed;
    case State::kTrailerStart:
    case State::kTrailer:
    case State::kTrailerEnd:
    case State::kLastLf:
      return ++line_bytes_ > kMaxLineBytes ? Result::kMalformed : read_trailers(c);
    case State::kData:
    case State::kDone:
      break;
  }
  return Result::kMalformed;
}

ChunkDecoder::Result ChunkDecoder::read_digit(char c) {
  const std::uint64_t limit = max_body_bytes_ - announced_;
  if (remaining_ > limit / 16) return Result::kTooLong;  // and would be; it may not even fit
  remaining_ = remaining_ * 16 + static_cast<std::uint64_t>(hex_digit(c));
  return remaining_ > limit ? Result::kTooLong : enter(State::kSize);
}

// chunk-size [ chunk-ext ] CRLF
ChunkDecoder::Result ChunkDecoder::read_size_line(char c) {
  if (state_ == State::kSizeEnd) {
    if (c != '\n') return Result::kMalformed;
    announced_ += static_cast<std::size_t>(remaining_);
    line_bytes_ = 0;
    return enter(remaining_ == 0 ? State::kTrailerStart : State::kData);
  }
  if (state_ != State::kExtension && hex_digit(c) >= 0) return read_digit(c);
  if (state_ == State::kFirstDigit) return Result::kMalformed;
  if (c == '\r') return enter(State::kSizeEnd);
  const bool extends = state_ == State::kExtension ? may_stand_in_line(c) : c == ';';
  return extends ? enter(State::kExtension) : Result::kMalformed;
}

// *( field-line CRLF ) CRLF
ChunkDecoder::Result ChunkDecoder::read_trailers(char c) {
  switch (state_) {
    case State::kTrailerEnd:
      return c == '\n' ? enter(State::kTrailerStart) : Result::kMalformed;
    case State::kLastLf:
      return c == '\n' ? enter(State::kDone) : Result::kMalformed;
    default:
      break;
  }
  if (c == '\r') {
    return enter(state_ == State::kTrailerStart ? State::kLastLf : State::kTrailerEnd);
  }
  return may_stand_in_line(c) ? enter(State::kTrailer) : Result::kMalformed;
}

}  // namespace quire::http
