#pragma once
// How the blocks of the decoder step's kernel hand activations to each other.
//
// Every 8-byte word in device memory carries 4 bytes of payload (two 16-bit elements, or one
// float32) and a tag that is new in every layer of every launch. A reader loads the words it needs
// until their tags are the ones it waits for: a transfer costs one store and one load, with no
// barrier or fence between, since 8 aligned bytes are written and read as one. Tags count on from
// launch to launch, so nothing has to be reset. They have 32 bits and wrap, which is harmless: they
// are compared for equality alone, and words in use are written anew in every layer, so that of the
// tags that a word can hold none but the last is the one that is waited for.
//
// A word may be written again when all of its readers have read it. That holds because the
// exchanges of a layer form a chain: whoever writes an exchange of the next layer has, through the
// chain, waited for all readers of this layer's (see decoder_step_cuda.cu).
//
// Ranks on several GPUs sum in the same way, with words of float32 in each other's memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/peer_words.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda::step {

using Word = uint64_t;

__device__ __forceinline__ Word make_word(uint32_t payload, uint32_t tag) {
  return (static_cast<Word>(tag) << 32) | payload;
}
__device__ __forceinline__ uint32_t payload_of(Word word) {
  return static_cast<uint32_t>(word);
}
__device__ __forceinline__ uint32_t tag_of(Word word) {
  return static_cast<uint32_t>(word >> 32);
}

__device__ __forceinline__ void publish(Word* to, uint32_t payload, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(make_word(payload, tag))
               : "memory");
}

__device__ __forceinline__ Word load_word(const Word* from) {
  Word word;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void load_two_words(const Word* from, Word& first, Word& second) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

// Which of a layer's two sums over the ranks.
enum class RankSum { kAfterAttention, kAfterMlp };

// The sum of the ranks' values of an element, in rank order. A rank writes what it has straight
// into the memory of the others.
//
// A word is written again when its reader has read it. Within a launch a thread of each rank owns
// an element in both sums and takes them in turn: who writes the word of one sum again has every
// rank's word of the other, which was sent after that rank had read this one. Owners may change
// from launch to launch, which the streams' order covers: a rank begins the next when its last sum
// is over, and has then heard from owners that had read all before.
__device__ __forceinline__ float sum_over_ranks(const PeerWords& peers, RankSum which, int row,
                                                int feature, int hidden, float value,
                                                uint32_t tag) {
  const auto place = [&](int rank) {
    const int64_t of_rank = static_cast<int64_t>(which) * peers.size + rank;
    return (of_rank * kMaxDecoderStepRows + row) * hidden + feature;
  };
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) continue;
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(peers.regions[r] + place(peers.rank)),
                 "l"(make_word(__float_as_uint(value), tag))
                 : "memory");
  }
  float total = 0;
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) {
      total += value;
      continue;
    }
    const Word* from = peers.regions[peers.rank] + place(r);
    Word word;
    for (unsigned round = 0;; ++round) {
      asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
      if (tag_of(word) == tag) break;
      trap_if_aborted(peers.aborted, round);
    }
    total += __uint_as_float(payload_of(word));
  }
  return total;
}

// Two 16-bit elements in 4 bytes, the first in the lower half, and the matrix units' products of
// them: m16n8k16, and m16n8k8.
template <typename T>
struct Elements;

template <>
struct Elements<__nv_bfloat16> {
  // The sum over a row of inputs times norm weights stays in range without the norm's factor.
  static constexpr bool kScalesFirst = false;

  static __device__ __forceinline__ uint32_t pack(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
  static __device__ __forceinline__ void add_product(float (&d)[4], uint32_t a0, uint32_t a1,
                                                     uint32_t a2, uint32_t a3, uint32_t b0,
                                                     uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ void add_short_product(float (&d)[4], uint32_t a0, uint32_t a1,
                                                           uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
};

template <>
struct Elements<__half> {
  static constexpr bool kScalesFirst = true;

  static __device__ __forceinline__ uint32_t pack(float a, float b) {
    const __half2 pair = __floats2half2_rn(a, b);
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t pair) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
  static __device__ __forceinline__ void add_product(float (&d)[4], uint32_t a0, uint32_t a1,
                                                     uint32_t a2, uint32_t a3, uint32_t b0,
                                                     uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ void add_short_product(float (&d)[4], uint32_t a0, uint32_t a1,
                                                           uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
};

}  // namespace quire::ops::cuda::step
