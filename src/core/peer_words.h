#pragma once
// Memory on each GPU of a group that the other ranks write into, for a kernel that all of them run
// at the same time (ops/decoder_step.h).
//
// Words of 8 bytes, zero in the beginning. Thread safety: a plain value.
#include <cstdint>

namespace quire {

inline constexpr int kMaxPeers = 8;

struct PeerWords {
  int rank = 0;
  int size = 1;
  int64_t count = 0;                  // words of each region; 0: there are none
  uint64_t* regions[kMaxPeers] = {};  // [size]: every rank's, this one's own among them
  // In host memory: not 0 when a rank has failed. Kernels that wait then trap.
  const int* aborted = nullptr;
};

}  // namespace quire
