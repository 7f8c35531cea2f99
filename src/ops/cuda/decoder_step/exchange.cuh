#pragma once
// How the blocks of the decoder step's kernel hand activations to each other.
//
// Every 8-byte word in device memory carries 4 bytes of payload (two 16-bit elements, or one
// float32) and a tag that is new in every layer of every launch. A reader loads the words it needs
// until their tags are the ones it waits for: a transfer costs one store and one load, with no
// barrier or fence between, since 8 aligned bytes are written and read as one. Tags count on from
// launch to launch, so nothing has to be reset. They have 32 bits and wrap, which is harmless:
// they are only compared for equality, and a word in use is written anew in every layer, so a tag
// from before the wrap is long gone. (Those of adapters' sums are not, where steps have none: a
// word would have to be used next exactly 2^32 tags later.)
//
// A word may be written again when all of its readers have read it. That holds because the
// exchanges of a layer form a chain: a block that writes an exchange of the next layer has, through
// the chain, waited for all readers of this layer's (see decoder_step_cuda.cu).
//
// Ranks on several GPUs sum in the same way, with words of float32 in each other's memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/peer_words.cuh"
#include "ops/cuda/decoder_step_kernels.h"

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

// The sum of the ranks' values of an element, in rank order. A rank writes its value straight into
// the memory of the others.
//
// A word may be written again when its reader has read it. Within a launch one thread of each rank
// owns an element and takes both sums in turn: before it writes the word of one sum again, it has
// every rank's word of the other sum, and each rank sent that after it had read this one. Owners
// may change from launch to launch, which the streams' order covers: a rank begins a launch when
// its last sum is over, and by then it has heard from owners that had read all before.
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

// What depends on the type of activations. unpack() takes two elements in 4 bytes, the first in the
// lower half: pair_of()'s inverse.
template <typename T>
struct Elements;

template <>
struct Elements<__nv_bfloat16> {
  // The sum over a row of inputs times norm weights stays in range without the norm's factor.
  static constexpr bool kScalesFirst = false;

  static __device__ __forceinline__ float2 unpack(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
};

template <>
struct Elements<__half> {
  static constexpr bool kScalesFirst = true;

  static __device__ __forceinline__ float2 unpack(uint32_t pair) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
};

}  // namespace quire::ops::cuda::step
