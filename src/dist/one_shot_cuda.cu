// A call's time at small sizes is that of its longest chain: read the turn, write to the peer, see
// it arrive, write the result; everything else is done beside it. The floor for large ones is the
// link: a one-shot sum sends size - 1 times its bytes from every rank, a two-shot sum 2 - 2 / size
// times.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "core/launch.cuh"
#include "dist/one_shot_cuda.h"

namespace quire {
namespace {

constexpr int64_t kChunkBytes = sizeof(uint4);  // what a thread sends at once
constexpr int64_t kHalfChunks = kPeerHalfBytes / kChunkBytes;

// Blocks wait for those of other devices, so a grid has to fit the device at once: one block a
// multiprocessor does.
constexpr int kMaxThreads = 512;

// One-shot sums up to this size: two trips over the link cost more than sending it size - 1 times.
// With two ranks one-shot sends no more than two-shot.
constexpr int64_t kMaxOneShotBytes = 256 << 10;

__device__ uint4 load_word4(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ void store_word4(uint4* to, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ uint32_t sendable(uint32_t word) {
  return word == kEmptyWord ? 0x7fffffffu : word;
}
__device__ uint4 sendable(uint4 v) {
  return make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w));
}
__device__ bool has_empty(uint4 v) {
  return v.x == kEmptyWord || v.y == kEmptyWord || v.z == kEmptyWord || v.w == kEmptyWord;
}

// Where this call's half begins, in chunks. All threads of the block call it.
__device__ int64_t take_turn(const PeerView& peers) {
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

// Called in each round of a wait.
__device__ void trap_if_aborted(const int* aborted, unsigned round) {
  constexpr unsigned kRoundsPerLook = 4096;  // a look takes a trip over PCIe, a round under 1 us
  if (round % kRoundsPerLook != kRoundsPerLook - 1) return;
  int value;
  asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(aborted) : "memory");
  if (value != 0) __trap();
}

// kPeers, here and below: at least the size of the group.
template <int kPeers>
__device__ void send_to_others(const PeerView& peers, int64_t offset, uint4 v) {
  v = sendable(v);
#pragma unroll
  for (int r = 0; r < kPeers; ++r) {
    if (r < peers.size && r != peers.rank) store_word4(peers.regions[r] + offset, v);
  }
}

// Waits for what each other rank r has put at first + r * stride of this rank's region, and empties
// it.
template <int kPeers>
__device__ void receive_from_others(const PeerView& peers, int64_t first, int64_t stride,
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

__device__ uint4 receive(const PeerView& peers, int64_t offset) {
  uint4* mine = peers.own + offset;
  uint4 got = load_word4(mine);
  for (unsigned round = 0; has_empty(got); ++round) {
    trap_if_aborted(peers.aborted, round);
    got = load_word4(mine);
  }
  store_word4(mine, make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord));
  return got;
}

// Chunk c of `bytes` bytes; what is beyond the end is zero.
__device__ uint4 load_chunk(const std::byte* data, int64_t bytes, int64_t c) {
  const std::byte* from = data + c * kChunkBytes;
  if ((c + 1) * kChunkBytes <= bytes) return *reinterpret_cast<const uint4*>(from);
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kChunkBytes; ++i) {
    if (c * kChunkBytes + i < bytes) words[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ void store_chunk(std::byte* data, int64_t bytes, int64_t c, uint4 v) {
  std::byte* to = data + c * kChunkBytes;
  if ((c + 1) * kChunkBytes <= bytes) {
    *reinterpret_cast<uint4*>(to) = v;
    return;
  }
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < kChunkBytes; ++i) {
    if (c * kChunkBytes + i < bytes) {
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

// The sum in rank order of this rank's chunk and those of the others.
template <typename T, int kPeers>
__device__ uint4 sum_in_order(const PeerView& peers, uint4 own, const uint4 (&others)[kPeers]) {
  constexpr int kFloats = Word<T>::kFloats;
  float sums[4 * kFloats];
#pragma unroll
  for (int r = 0; r < kPeers; ++r) {
    if (r >= peers.size) break;
    const uint4 v = r == peers.rank ? own : others[r];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float values[kFloats];
      Word<T>::unpack(words[w], values);
#pragma unroll
      for (int i = 0; i < kFloats; ++i) {
        float& sum = sums[w * kFloats + i];
        sum = r == 0 ? values[i] : sum + values[i];
      }
    }
  }
  return make_uint4(Word<T>::pack(sums), Word<T>::pack(sums + kFloats),
                    Word<T>::pack(sums + 2 * kFloats), Word<T>::pack(sums + 3 * kFloats));
}

// Everybody sends everything to everybody: rank r's chunk c is at r * num_chunks + c.
template <typename T, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    one_shot_kernel(PeerView peers, std::byte* data, int64_t bytes) {
  const int64_t num_chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  release_next();
  wait_for_previous();
  uint4 mine = {};  // the first chunk is read while the turn is
  if (first < num_chunks) mine = load_chunk(data, bytes, first);
  const int64_t half = take_turn(peers);
  for (int64_t c = first; c < num_chunks; c += step) {
    if (c != first) mine = load_chunk(data, bytes, c);
    send_to_others<kPeers>(peers, half + peers.rank * num_chunks + c, mine);
  }
  for (int64_t c = first; c < num_chunks; c += step) {
    const uint4 own = load_chunk(data, bytes, c);
    uint4 others[kPeers];
    receive_from_others(peers, half + c, num_chunks, others);
    store_chunk(data, bytes, c, sum_in_order<T>(peers, own, others));
  }
}

// Rank s sums slice s of the chunks and sends the sum to everybody. What rank r sends for a slice
// is at r * slice, the sums are from size * slice on. A thread has the same places of all slices,
// so it reads a chunk of data before it overwrites it.
template <typename T, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    two_shot_kernel(PeerView peers, std::byte* data, int64_t bytes) {
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const int64_t num_chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const int64_t slice = (num_chunks + peers.size - 1) / peers.size;
  const int64_t sums = half + peers.size * slice;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = first; i < slice; i += step) {
#pragma unroll
    for (int s = 0; s < kPeers; ++s) {
      const int64_t c = s * slice + i;
      if (s < peers.size && s != peers.rank && c < num_chunks) {
        store_word4(peers.regions[s] + half + peers.rank * slice + i,
                    sendable(load_chunk(data, bytes, c)));
      }
    }
  }
  for (int64_t i = first; i < slice; i += step) {
    const int64_t c = peers.rank * slice + i;
    if (c >= num_chunks) break;
    const uint4 own = load_chunk(data, bytes, c);
    uint4 others[kPeers];
    receive_from_others(peers, half + i, slice, others);
    const uint4 sum = sum_in_order<T>(peers, own, others);
    send_to_others<kPeers>(peers, sums + c, sum);
    store_chunk(data, bytes, c, sum);
  }
  for (int64_t i = first; i < slice; i += step) {
    for (int s = 0; s < peers.size; ++s) {
      const int64_t c = s * slice + i;
      if (s == peers.rank || c >= num_chunks) continue;
      store_chunk(data, bytes, c, receive(peers, sums + c));
    }
  }
}

// Units [first_unit, first_unit + num_units) of the input, counted along its rows. Columns and
// strides are in units.
template <typename Unit>
struct Gather {
  const Unit* input;
  int64_t input_stride;
  Unit* output;
  int64_t output_stride;
  uint32_t columns;
  uint32_t first_unit;
  uint32_t num_units;
};

template <typename Unit, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    all_gather_kernel(PeerView peers, Gather<Unit> args) {
  constexpr uint32_t kUnits = kChunkBytes / sizeof(Unit);
  union Chunk {
    uint4 whole;
    Unit units[kUnits];
  };
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const uint32_t num_chunks = (args.num_units + kUnits - 1) / kUnits;
  const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t step = gridDim.x * blockDim.x;
  // Calls body(unit of the chunk, row, column).
  const auto for_units = [&](uint32_t c, const auto& body) {
#pragma unroll
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (c * kUnits + u >= args.num_units) break;
      const uint32_t at = args.first_unit + c * kUnits + u;
      body(u, at / args.columns, at % args.columns);
    }
  };
  const auto store = [&](int r, uint32_t c, const Chunk& chunk) {
    for_units(c, [&](uint32_t u, uint32_t row, uint32_t column) {
      args.output[row * args.output_stride + int64_t{r} * args.columns + column] = chunk.units[u];
    });
  };
  for (uint32_t c = first; c < num_chunks; c += step) {
    Chunk own;
    own.whole = make_uint4(0, 0, 0, 0);
    for_units(c, [&](uint32_t u, uint32_t row, uint32_t column) {
      own.units[u] = args.input[row * args.input_stride + column];
    });
    send_to_others<kPeers>(peers, half + int64_t{peers.rank} * num_chunks + c, own.whole);
    store(peers.rank, c, own);
  }
  for (uint32_t c = first; c < num_chunks; c += step) {
    uint4 others[kPeers];
    receive_from_others(peers, half + c, num_chunks, others);
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r < peers.size && r != peers.rank) store(r, c, Chunk{others[r]});
    }
  }
}

// So that everybody hears from everybody, ranks other than the root send their first chunk too.
template <int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    broadcast_kernel(PeerView peers, std::byte* data, int64_t bytes, int root) {
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const int64_t num_chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const bool is_root = peers.rank == root;
  for (int64_t c = first; c < num_chunks && (is_root || c == 0); c += step) {
    send_to_others<kPeers>(peers, half + peers.rank * num_chunks + c, load_chunk(data, bytes, c));
  }
  if (first == 0) {
    uint4 others[kPeers];
    receive_from_others(peers, half, num_chunks, others);
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r == root && !is_root) store_chunk(data, bytes, 0, others[r]);
    }
  }
  if (is_root) return;
  for (int64_t c = first == 0 ? step : first; c < num_chunks; c += step) {
    store_chunk(data, bytes, c, receive(peers, half + root * num_chunks + c));
  }
}

// Few threads a block while there are multiprocessors to spread them over.
int threads_for(const CudaStream& stream, int64_t num_chunks) {
  int threads = 128;
  while (threads < kMaxThreads && num_chunks > int64_t{threads} * stream.num_multiprocessors()) {
    threads *= 2;
  }
  return threads;
}

template <typename... Params, typename... Args>
void launch_peers(CudaStream& stream, void (*kernel)(Params...), int64_t num_chunks,
                  const Args&... args) {
  const int threads = threads_for(stream, num_chunks);
  const int64_t blocks =
      std::min<int64_t>((num_chunks + threads - 1) / threads, stream.num_multiprocessors());
  launch(stream, kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
         0, args...);
}

// The kernels of one group size.
template <int kPeers>
struct Kernels {
  using Sum = void (*)(PeerView, std::byte*, int64_t);

  static Sum one_shot(DType dtype) {
    switch (dtype) {
      case DType::kBFloat16:
        return one_shot_kernel<__nv_bfloat16, kPeers>;
      case DType::kFloat16:
        return one_shot_kernel<__half, kPeers>;
      default:
        return one_shot_kernel<float, kPeers>;
    }
  }

  static Sum two_shot(DType dtype) {
    switch (dtype) {
      case DType::kBFloat16:
        return two_shot_kernel<__nv_bfloat16, kPeers>;
      case DType::kFloat16:
        return two_shot_kernel<__half, kPeers>;
      default:
        return two_shot_kernel<float, kPeers>;
    }
  }

  static void all_reduce(CudaStream& stream, const PeerView& peers, DType dtype, std::byte* data,
                         int64_t bytes) {
    const bool is_one_shot = peers.size == 2 || bytes <= kMaxOneShotBytes;
    // A two-shot sum keeps what is sent and the sums, with a chunk a rank to round up to.
    const int64_t piece = is_one_shot ? kPeerHalfBytes / peers.size / kChunkBytes * kChunkBytes
                                      : kPeerHalfBytes / 2 - peers.size * kChunkBytes;
    for (int64_t begin = 0; begin < bytes; begin += piece) {
      const int64_t length = std::min(piece, bytes - begin);
      const int64_t num_chunks = (length + kChunkBytes - 1) / kChunkBytes;
      if (is_one_shot) {
        launch_peers(stream, one_shot(dtype), num_chunks, peers, data + begin, length);
      } else {
        launch_peers(stream, two_shot(dtype), (num_chunks + peers.size - 1) / peers.size, peers,
                     data + begin, length);
      }
    }
  }

  template <typename Unit>
  static void all_gather(CudaStream& stream, const PeerView& peers, const PeerGather& args) {
    constexpr int64_t kBytes = sizeof(Unit);
    const int64_t num_units = args.rows * args.columns / kBytes;
    check(num_units < int64_t{1} << 31, "all_gather_columns takes 2^31 units at most");
    const int64_t piece = kPeerHalfBytes / peers.size / kChunkBytes * kChunkBytes / kBytes;
    for (int64_t begin = 0; begin < num_units; begin += piece) {
      Gather<Unit> gather = {};
      gather.input = static_cast<const Unit*>(args.input);
      gather.input_stride = args.input_stride / kBytes;
      gather.output = static_cast<Unit*>(args.output);
      gather.output_stride = args.output_stride / kBytes;
      gather.columns = static_cast<uint32_t>(args.columns / kBytes);
      gather.first_unit = static_cast<uint32_t>(begin);
      gather.num_units = static_cast<uint32_t>(std::min(piece, num_units - begin));
      launch_peers(stream, all_gather_kernel<Unit, kPeers>,
                   (gather.num_units * kBytes + kChunkBytes - 1) / kChunkBytes, peers, gather);
    }
  }

  static void broadcast(CudaStream& stream, const PeerView& peers, std::byte* data, int64_t bytes,
                        int root) {
    const int64_t piece = kPeerHalfBytes / peers.size / kChunkBytes * kChunkBytes;
    for (int64_t begin = 0; begin < bytes; begin += piece) {
      const int64_t length = std::min(piece, bytes - begin);
      launch_peers(stream, broadcast_kernel<kPeers>, (length + kChunkBytes - 1) / kChunkBytes,
                   peers, data + begin, length, root);
    }
  }

  static void load() {
    const auto load_one = [](const void* kernel) {
      cudaFuncAttributes attributes = {};
      check_cuda(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel");
    };
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      load_one(reinterpret_cast<const void*>(one_shot(dtype)));
      load_one(reinterpret_cast<const void*>(two_shot(dtype)));
    }
    load_one(reinterpret_cast<const void*>(all_gather_kernel<uint4, kPeers>));
    load_one(reinterpret_cast<const void*>(all_gather_kernel<uint32_t, kPeers>));
    load_one(reinterpret_cast<const void*>(all_gather_kernel<uint8_t, kPeers>));
    load_one(reinterpret_cast<const void*>(broadcast_kernel<kPeers>));
  }
};

// Calls body(Kernels<n>) for the least n that is enough.
template <typename Body>
void with_kernels(int size, const Body& body) {
  check(size >= 2 && size <= kMaxPeers, "a group of peers has 2 to kMaxPeers ranks");
  if (size == 2) return body(Kernels<2>());
  if (size <= 4) return body(Kernels<4>());
  body(Kernels<kMaxPeers>());
}

}  // namespace

void peer_all_reduce(CudaStream& stream, const PeerView& peers, DType dtype, void* data,
                     int64_t count) {
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
        "all_reduce_sum takes float32, bfloat16 and float16");
  check(reinterpret_cast<uintptr_t>(data) % kChunkBytes == 0, "tensors are aligned to 16 bytes");
  with_kernels(peers.size, [&](auto kernels) {
    kernels.all_reduce(stream, peers, dtype, static_cast<std::byte*>(data),
                       count * static_cast<int64_t>(size_of(dtype)));
  });
}

void peer_all_gather_columns(CudaStream& stream, const PeerView& peers, const PeerGather& args) {
  const auto all = static_cast<uint64_t>(args.columns | args.input_stride | args.output_stride) |
                   reinterpret_cast<uintptr_t>(args.input) |
                   reinterpret_cast<uintptr_t>(args.output);
  with_kernels(peers.size, [&](auto kernels) {
    if (all % sizeof(uint4) == 0) {
      kernels.template all_gather<uint4>(stream, peers, args);
    } else if (all % sizeof(uint32_t) == 0) {
      kernels.template all_gather<uint32_t>(stream, peers, args);
    } else {
      kernels.template all_gather<uint8_t>(stream, peers, args);
    }
  });
}

void peer_broadcast(CudaStream& stream, const PeerView& peers, void* data, int64_t bytes,
                    int root) {
  check(reinterpret_cast<uintptr_t>(data) % kChunkBytes == 0, "tensors are aligned to 16 bytes");
  with_kernels(peers.size, [&](auto kernels) {
    kernels.broadcast(stream, peers, static_cast<std::byte*>(data), bytes, root);
  });
}

void load_peer_kernels(int size) {
  with_kernels(size, [](auto kernels) { kernels.load(); });
}

}  // namespace quire
