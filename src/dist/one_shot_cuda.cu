// A call's time at small sizes is that of its longest chain: read the turn, write to the peer, see
// it arrive, write the result; everything else is done beside it. The floor for large ones is the
// link: a one-shot sum sends size - 1 times its bytes from every rank, a two-shot sum 2 - 2 / size
// times.
#include <algorithm>

#include "core/launch.cuh"
#include "dist/one_shot_cuda.cuh"
#include "dist/one_shot_cuda.h"

namespace quire {
namespace {

using namespace one_shot_internal;

// Blocks wait for those of other devices, so a grid has to fit the device at once: one block a
// multiprocessor does.
constexpr int kMaxThreads = 512;

// Rank r's chunk c is at r * num_chunks + c.
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
    store_chunk(data, bytes, c, receive_sum<T, kPeers>(peers, own, half + c, num_chunks));
  }
}

// A thread has the same places of all slices, so it reads a chunk of data before it overwrites it.
template <typename T, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    two_shot_kernel(PeerView peers, std::byte* data, int64_t bytes) {
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const int64_t num_chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const TwoShot layout(peers, half, num_chunks);
  const auto keep = [&](int64_t c, uint4 sum) {
    if (c < num_chunks) store_chunk(data, bytes, c, sum);
  };
  sum_slices<T, kPeers>(
      peers, half, layout, [&](int64_t c) { return load_chunk(data, bytes, c); }, keep);
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = spread_thread(); i < layout.slice; i += step) {
    uint4 sums[kPeers];
    receive_from_others(peers, layout.sums + i, layout.slice, sums);
#pragma unroll
    for (int s = 0; s < kPeers; ++s) {
      if (s < peers.size && s != peers.rank) keep(s * layout.slice + i, sums[s]);
    }
  }
}

// Units [first_unit, first_unit + num_units) of what a rank is sent, counted along its rows.
// Columns and strides are in units.
template <typename Unit>
struct Gather {
  const Unit* input;
  int64_t input_stride;
  Unit* output;
  int64_t output_stride;
  uint32_t rows;
  uint32_t rows_each;  // as PeerGather's
  uint32_t columns;
  uint32_t first_unit;
  uint32_t num_units;

  // Of this piece, what rank r is sent.
  __device__ uint32_t units_for(int r) const {
    const uint32_t its_rows = rows_each == 0 ? rows : min(rows_each, rows - r * rows_each);
    const uint32_t end = its_rows * columns;
    return end > first_unit ? min(num_units, end - first_unit) : 0;
  }
};

template <typename Unit, typename Payload, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    all_gather_kernel(PeerView peers, Gather<Unit> args) {
  constexpr uint32_t kUnits = sizeof(Payload) / sizeof(Unit);
  union Chunk {
    Payload whole;
    Unit units[kUnits];
  };
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const uint32_t num_chunks = (args.num_units + kUnits - 1) / kUnits;
  const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t step = gridDim.x * blockDim.x;
  // Who has nothing left is sent a chunk nevertheless: everybody hears from everybody.
  const auto chunks_for = [&](int r) { return max(1u, (args.units_for(r) + kUnits - 1) / kUnits); };
  // Calls body(unit of the chunk, row, column) for what rank r is sent.
  const auto for_units = [&](int r, uint32_t c, const auto& body) {
    const uint32_t num_units = args.units_for(r);
#pragma unroll
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (c * kUnits + u >= num_units) break;
      const uint32_t at = args.first_unit + c * kUnits + u;
      body(u, at / args.columns, at % args.columns);
    }
  };
  const auto store = [&](int r, uint32_t c, const Chunk& chunk) {
    for_units(peers.rank, c, [&](uint32_t u, uint32_t row, uint32_t column) {
      args.output[row * args.output_stride + int64_t{r} * args.columns + column] = chunk.units[u];
    });
  };
  for (uint32_t c = first; c < num_chunks; c += step) {
    Chunk own[kPeers];  // all are on their way before the first is sent
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      own[r].whole = Payload();
      if (r > 0 && args.rows_each == 0) own[r] = own[0];
      if (r >= peers.size || (r > 0 && args.rows_each == 0)) continue;
      for_units(r, c, [&](uint32_t u, uint32_t row, uint32_t column) {
        own[r].units[u] = args.input[(r * args.rows_each + row) * args.input_stride + column];
      });
    }
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r >= peers.size || c >= chunks_for(r)) continue;
      if (r == peers.rank) {
        store(r, c, own[r]);
      } else {
        store_word4(peers.regions[r] + half + int64_t{peers.rank} * num_chunks + c,
                    to_words(own[r].whole));
      }
    }
  }
  for (uint32_t c = first; c < chunks_for(peers.rank); c += step) {
    uint4 others[kPeers];
    receive_from_others(peers, half + c, num_chunks, others);
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r < peers.size && r != peers.rank) store(r, c, Chunk{from_words<Payload>(others[r])});
    }
  }
}

// So that everybody hears from everybody, ranks other than the root send their first chunk too.
template <typename Payload, int kPeers>
__global__ void __launch_bounds__(kMaxThreads)
    broadcast_kernel(PeerView peers, std::byte* data, int64_t bytes, int root) {
  constexpr int64_t kBytes = sizeof(Payload);
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const int64_t num_chunks = (bytes + kBytes - 1) / kBytes;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const bool is_root = peers.rank == root;
  for (int64_t c = first; c < num_chunks && (is_root || c == 0); c += step) {
    send_words_to_others<kPeers>(peers, half + peers.rank * num_chunks + c,
                                 to_words(load_chunk<Payload>(data, bytes, c)));
  }
  if (first == 0) {
    uint4 others[kPeers];
    receive_from_others(peers, half, num_chunks, others);
#pragma unroll
    for (int r = 0; r < kPeers; ++r) {
      if (r == root && !is_root) store_chunk(data, bytes, 0, from_words<Payload>(others[r]));
    }
  }
  if (is_root) return;
  for (int64_t c = first == 0 ? step : first; c < num_chunks; c += step) {
    store_chunk(data, bytes, c, from_words<Payload>(receive(peers, half + root * num_chunks + c)));
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
                         int64_t bytes, PeerSum how) {
    const bool one_shot_is_used =
        how == PeerSum::kOneShot || (how == PeerSum::kBySize && is_one_shot(peers.size, bytes));
    const int64_t piece = one_shot_is_used ? kPeerHalfBytes / peers.size / kChunkBytes * kChunkBytes
                                           : max_two_shot_bytes(peers.size);
    for (int64_t begin = 0; begin < bytes; begin += piece) {
      const int64_t length = std::min(piece, bytes - begin);
      const int64_t num_chunks = (length + kChunkBytes - 1) / kChunkBytes;
      if (one_shot_is_used) {
        launch_peers(stream, one_shot(dtype), num_chunks, peers, data + begin, length);
      } else {
        launch_peers(stream, two_shot(dtype), (num_chunks + peers.size - 1) / peers.size, peers,
                     data + begin, length);
      }
    }
  }

  template <typename Unit, typename Payload>
  static void all_gather(CudaStream& stream, const PeerView& peers, const PeerGather& args) {
    constexpr int64_t kBytes = sizeof(Unit);
    constexpr int64_t kPayload = sizeof(Payload);
    const int64_t rows = args.rows_each == 0 ? args.rows : args.rows_each;
    const int64_t num_units = rows * args.columns / kBytes;
    check(num_units < int64_t{1} << 31, "all_gather_columns takes 2^31 units at most");
    const int64_t piece = kPeerHalfBytes / peers.size / kChunkBytes * kPayload / kBytes;
    for (int64_t begin = 0; begin < num_units; begin += piece) {
      Gather<Unit> gather = {};
      gather.input = static_cast<const Unit*>(args.input);
      gather.input_stride = args.input_stride / kBytes;
      gather.output = static_cast<Unit*>(args.output);
      gather.output_stride = args.output_stride / kBytes;
      gather.rows = static_cast<uint32_t>(args.rows);
      gather.rows_each = static_cast<uint32_t>(args.rows_each);
      gather.columns = static_cast<uint32_t>(args.columns / kBytes);
      gather.first_unit = static_cast<uint32_t>(begin);
      gather.num_units = static_cast<uint32_t>(std::min(piece, num_units - begin));
      launch_peers(stream, all_gather_kernel<Unit, Payload, kPeers>,
                   (gather.num_units * kBytes + kPayload - 1) / kPayload, peers, gather);
    }
  }

  template <typename Payload>
  static void broadcast(CudaStream& stream, const PeerView& peers, std::byte* data, int64_t bytes,
                        int root) {
    constexpr int64_t kPayload = sizeof(Payload);
    const int64_t piece = kPeerHalfBytes / peers.size / kChunkBytes * kPayload;
    for (int64_t begin = 0; begin < bytes; begin += piece) {
      const int64_t length = std::min(piece, bytes - begin);
      launch_peers(stream, broadcast_kernel<Payload, kPeers>, (length + kPayload - 1) / kPayload,
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
    const auto load_copies = [&]<typename Payload>(Payload) {
      load_one(reinterpret_cast<const void*>(all_gather_kernel<Payload, Payload, kPeers>));
      load_one(reinterpret_cast<const void*>(all_gather_kernel<uint32_t, Payload, kPeers>));
      load_one(reinterpret_cast<const void*>(all_gather_kernel<uint8_t, Payload, kPeers>));
      load_one(reinterpret_cast<const void*>(broadcast_kernel<Payload, kPeers>));
    };
    load_copies(FloatPayload());
    load_copies(BitPayload());
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

// Calls body(a FloatPayload or BitPayload).
template <typename Body>
void with_payload(PeerContent content, const Body& body) {
  if (content == PeerContent::kFloats) return body(FloatPayload());
  body(BitPayload());
}

}  // namespace

bool is_one_shot(int size, int64_t bytes) {
  // Two trips over the link cost more than sending this much size - 1 times. With two ranks
  // one-shot sends no more than two-shot.
  constexpr int64_t kMaxOneShotBytes = 256 << 10;
  return size == 2 ? bytes <= kPeerHalfBytes / 2 : bytes <= kMaxOneShotBytes;
}

int64_t max_two_shot_bytes(int size) {
  // What is sent and the sums, with a chunk a rank to round up to.
  return kPeerHalfBytes / 2 - size * kChunkBytes;
}

void peer_all_reduce(CudaStream& stream, const PeerView& peers, DType dtype, void* data,
                     int64_t count, PeerSum how) {
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
        "all_reduce_sum takes float32, bfloat16 and float16");
  check(reinterpret_cast<uintptr_t>(data) % kChunkBytes == 0, "tensors are aligned to 16 bytes");
  with_kernels(peers.size, [&](auto kernels) {
    kernels.all_reduce(stream, peers, dtype, static_cast<std::byte*>(data),
                       count * static_cast<int64_t>(size_of(dtype)), how);
  });
}

void peer_all_gather_columns(CudaStream& stream, const PeerView& peers, const PeerGather& args) {
  const auto all = static_cast<uint64_t>(args.columns | args.input_stride | args.output_stride) |
                   reinterpret_cast<uintptr_t>(args.input) |
                   reinterpret_cast<uintptr_t>(args.output);
  with_kernels(peers.size, [&](auto kernels) {
    with_payload(args.content, [&]<typename Payload>(Payload) {
      if (all % sizeof(Payload) == 0) {
        kernels.template all_gather<Payload, Payload>(stream, peers, args);
      } else if (all % sizeof(uint32_t) == 0) {
        kernels.template all_gather<uint32_t, Payload>(stream, peers, args);
      } else {
        kernels.template all_gather<uint8_t, Payload>(stream, peers, args);
      }
    });
  });
}

void peer_broadcast(CudaStream& stream, const PeerView& peers, void* data, int64_t bytes, int root,
                    PeerContent content) {
  check(reinterpret_cast<uintptr_t>(data) % kChunkBytes == 0, "tensors are aligned to 16 bytes");
  with_kernels(peers.size, [&](auto kernels) {
    with_payload(content, [&]<typename Payload>(Payload) {
      kernels.template broadcast<Payload>(stream, peers, static_cast<std::byte*>(data), bytes,
                                          root);
    });
  });
}

void load_peer_kernels(int size) {
  with_kernels(size, [](auto kernels) { kernels.load(); });
}

}  // namespace quire
