#pragma once
// How the kernels of dist/one_shot_cuda.h send, wait and add.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "core/peer_words.cuh"
#include "dist/one_shot_cuda.h"

namespace quire::one_shot_internal {

constexpr int64_t kChunkBytes = sizeof(uint4);  // what a thread sends at once
constexpr int64_t kHalfChunks = kPeerHalfBytes / kChunkBytes;

__device__ inline uint4 load_word4(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ inline void store_word4(uint4* to, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ inline uint32_t sendable(uint32_t word) {
  return word == kEmptyWord ? 0x7fffffffu : word;
}
__device__ inline uint4 sendable(uint4 v) {
  return make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w));
}

// What a thread reads and writes at once of data that is only copied, and the four words that it is
// sent as: floating point numbers as they are but for kEmptyWord, any other bits as words of 16, so
// that none is kEmptyWord.
using FloatPayload = uint4;
using BitPayload = uint2;

__device__ inline uint4 to_words(FloatPayload v) {
  return sendable(v);
}
__device__ inline uint4 to_words(BitPayload v) {
  return make_uint4(v.x & 0xffff, v.x >> 16, v.y & 0xffff, v.y >> 16);
}

template <typename Payload>
__device__ Payload from_words(uint4 words);
template <>
__device__ inline FloatPayload from_words<FloatPayload>(uint4 words) {
  return words;
}
template <>
__device__ inline BitPayload from_words<BitPayload>(uint4 words) {
  return make_uint2(words.x | words.y << 16, words.z | words.w << 16);
}

__device__ inline bool has_empty(uint4 v) {
  return v.x == kEmptyWord || v.y == kEmptyWord || v.z == kEmptyWord || v.w == kEmptyWord;
}

// Where this call's half begins, in chunks. All threads of the block call it.
__device__ inline int64_t take_turn(const PeerView& peers) {
  __shared__ uint32_t turn;
  if (threadIdx.x == 0) {
    // Calls in the upper half of the word, blocks in the lower, so that one access does it.
    const uint32_t seen = atomicAdd(peers.turn, 1);
    if ((seen & 0xffff) == gridDim.x - 1) atomicAdd(peers.turn, 0x10000 - gridDim.x);
    turn = seen >> 16;
  }
  __syncthreads();
  return (turn & 1) * kHalfChunks;
}

// kPeers, here and below: at least the size of the group.
template <int kPeers>
__device__ inline void send_words_to_others(const PeerView& peers, int64_t offset, uint4 v) {
#pragma unroll
  for (int r = 0; r < kPeers; ++r) {
    if (r < peers.size && r != peers.rank) store_word4(peers.regions[r] + offset, v);
  }
}

template <int kPeers>
__device__ inline void send_to_others(const PeerView& peers, int64_t offset, uint4 v) {
  send_words_to_others<kPeers>(peers, offset, sendable(v));
}

// Waits for what each other rank r has put at first + r * stride of this rank's region, and empties
// it; got[r] is what rank r has put, this rank's own element stays.
template <int kPeers>
__device__ inline void receive_from_others(const PeerView& peers, int64_t first, int64_t stride,
                                           uint4 (&got)[kPeers]) {
  uint4* mine = peers.own + first;
  bool missing = true;
  for (unsigned round = 0; missing; ++round) {
    missing = false;
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r < peers.size && r != peers.rank) got[r] = load_word4(mine + r * stride);
    }
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r < peers.size && r != peers.rank) missing |= has_empty(got[r]);
    }
    if (missing) trap_if_aborted(peers.aborted, round);
  }
  const uint4 empty = make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord);
#pragma unroll
  for (int r = 0; r < kPeers; ++r) {
    if (r < peers.size && r != peers.rank) store_word4(mine + r * stride, empty);
  }
}

__device__ inline uint4 receive(const PeerView& peers, int64_t offset) {
  uint4* mine = peers.own + offset;
  uint4 got = load_word4(mine);
  for (unsigned round = 0; has_empty(got); ++round) {
    trap_if_aborted(peers.aborted, round);
    got = load_word4(mine);
  }
  store_word4(mine, make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord));
  return got;
}

// Chunk c of `bytes` bytes, a Payload each; what is beyond the end is zero.
template <typename Payload = uint4>
__device__ inline Payload load_chunk(const std::byte* data, int64_t bytes, int64_t c) {
  constexpr int kBytes = sizeof(Payload);
  const std::byte* from = data + c * kBytes;
  if ((c + 1) * kBytes <= bytes) return *reinterpret_cast<const Payload*>(from);
  uint32_t words[kBytes / 4] = {};
#pragma unroll
  for (int i = 0; i < kBytes; ++i) {
    if (c * kBytes + i < bytes) words[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
  }
  if constexpr (kBytes == sizeof(uint4)) {
    return make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    return make_uint2(words[0], words[1]);
  }
}

template <typename Payload>
__device__ inline void store_chunk(std::byte* data, int64_t bytes, int64_t c, Payload v) {
  constexpr int kBytes = sizeof(Payload);
  std::byte* to = data + c * kBytes;
  if ((c + 1) * kBytes <= bytes) {
    *reinterpret_cast<Payload*>(to) = v;
    return;
  }
  uint32_t words[kBytes / 4] = {v.x, v.y};
  if constexpr (kBytes == sizeof(uint4)) {
    words[2] = v.z;
    words[3] = v.w;
  }
#pragma unroll
  for (int i = 0; i < kBytes; ++i) {
    if (c * kBytes + i < bytes) {
      to[i] = static_cast<std::byte>(words[i / 4] >> (i % 4 * 8) & 0xff);
    }
  }
}

// A word of a chunk to the floats in it, and back.
template <typename T>
struct Word;

template <>
struct Word<float> {
  static constexpr int kFloats = 1;
  __device__ static void unpack(uint32_t word, float* out) { out[0] = __uint_as_float(word); }
  __device__ static uint32_t pack(const float* in) { return __float_as_uint(in[0]); }
};

template <>
struct Word<__nv_bfloat16> {
  static constexpr int kFloats = 2;
  __device__ static void unpack(uint32_t word, float* out) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xffff0000u);
  }
  __device__ static uint32_t pack(const float* in) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(in[0])) |
           static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(in[1]))) << 16;
  }
};

template <>
struct Word<__half> {
  static constexpr int kFloats = 2;
  __device__ static void unpack(uint32_t word, float* out) {
    out[0] = __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffff)));
    out[1] = __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
  }
  __device__ static uint32_t pack(const float* in) {
    return __half_as_ushort(__float2half_rn(in[0])) |
           static_cast<uint32_t>(__half_as_ushort(__float2half_rn(in[1]))) << 16;
  }
};

// A chunk to its floats, and back, rounded.
template <typename T>
__device__ void unpack(uint4 chunk, float* out) {
  constexpr int kFloats = Word<T>::kFloats;
  Word<T>::unpack(chunk.x, out);
  Word<T>::unpack(chunk.y, out + kFloats);
  Word<T>::unpack(chunk.z, out + 2 * kFloats);
  Word<T>::unpack(chunk.w, out + 3 * kFloats);
}

template <typename T>
__device__ uint4 pack(const float* in) {
  constexpr int kFloats = Word<T>::kFloats;
  return make_uint4(Word<T>::pack(in), Word<T>::pack(in + kFloats), Word<T>::pack(in + 2 * kFloats),
                    Word<T>::pack(in + 3 * kFloats));
}

// The sum in rank order of this rank's chunk and those that the others have put at first + r *
// stride.
template <typename T, int kPeers>
__device__ uint4 receive_sum(const PeerView& peers, uint4 own, int64_t first, int64_t stride) {
  uint4 parts[kPeers];
#pragma unroll
  for (int r = 0; r < kPeers; ++r) parts[r] = own;
  receive_from_others(peers, first, stride, parts);
  constexpr int kFloats = 4 * Word<T>::kFloats;
  float sums[kFloats];
#pragma unroll
  for (int r = 0; r < kPeers; ++r) {
    if (r >= peers.size) break;
    float values[kFloats];
    unpack<T>(parts[r], values);
#pragma unroll
    for (int i = 0; i < kFloats; ++i) sums[i] = r == 0 ? values[i] : sums[i] + values[i];
  }
  return pack<T>(sums);
}

// How a sum in two shots lays out a half: rank s sums slice s of the chunks; the last slice may
// go beyond their end. What rank r sends for a slice is at r * slice, the sums are from `sums` on.
struct TwoShot {
  int64_t slice;
  int64_t sums;

  __device__ TwoShot(const PeerView& peers, int64_t half, int64_t num_chunks)
      : slice((num_chunks + peers.size - 1) / peers.size), sums(half + peers.size * slice) {}
};

// A number for each thread of the grid: warps in turn over the blocks, so that few chunks are
// spread over many multiprocessors.
__device__ inline int64_t spread_thread() {
  constexpr unsigned kWarp = 32;
  return (int64_t{threadIdx.x / kWarp} * gridDim.x + blockIdx.x) * kWarp + threadIdx.x % kWarp;
}

// Sends every rank its slice, sums this rank's and sends the sums to the others. load(c) is chunk c
// of this rank's data, also beyond the end; keep(c, sum) is given this rank's sums. All threads of
// the grid call it; each has chunks spread_thread(), ... of all slices.
template <typename T, int kPeers, typename Load, typename Keep>
__device__ void sum_slices(const PeerView& peers, int64_t half, const TwoShot& layout,
                           const Load& load, const Keep& keep) {
  const int64_t first = spread_thread();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = first; i < layout.slice; i += step) {
    uint4 chunks[kPeers];  // all are on their way before the first is sent
#pragma unroll
    for (int s = 0; s < kPeers; ++s) {
      if (s < peers.size && s != peers.rank) chunks[s] = load(s * layout.slice + i);
    }
#pragma unroll
    for (int s = 0; s < kPeers; ++s) {
      if (s < peers.size && s != peers.rank) {
        store_word4(peers.regions[s] + half + peers.rank * layout.slice + i, sendable(chunks[s]));
      }
    }
  }
  for (int64_t i = first; i < layout.slice; i += step) {
    const int64_t c = peers.rank * layout.slice + i;
    const uint4 sum = receive_sum<T, kPeers>(peers, load(c), half + i, layout.slice);
    send_to_others<kPeers>(peers, layout.sums + c, sum);
    keep(c, sum);
  }
}

}  // namespace quire::one_shot_internal
