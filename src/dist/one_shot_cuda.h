#pragma once
// Collectives of GPUs that reach each other's memory, for tensors so small that NCCL would be slow.
//
// Every rank has a region of memory that all ranks write to, cut into two halves that calls use in
// turn. A word that has not been written holds kEmptyWord. A rank writes its data straight into the
// regions of the others and waits until the words that it expects are in its own region. So data is
// its own signal: no fence and no flag is needed, and a call takes one trip over the link. The
// reader empties a word again as soon as it has read it. Two halves are enough: in every call each
// rank hears from all others, directly or through a third, so a rank in call i + 2 knows that all
// ranks have begun call i + 1, and a rank begins call i + 1 only when its call i is over. The
// device counts the calls to tell which half is next, so that graphs can be replayed.
//
// The calls queue their work and can be captured; all ranks make the same ones in the same order,
// each on one stream. Sums are taken in rank order in float32 and rounded once: all ranks get the
// same bits, whatever the size. Thread safety: one thread at a time on a stream.
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/peer_words.h"

namespace quire {

class CudaStream;  // core/stream_cuda.h

// As two 16-bit elements, or as one float32, this is NaN. Floats that hold this word are sent with
// another NaN in its place.
inline constexpr uint32_t kEmptyWord = 0xffffffff;

// What a call copies.
enum class PeerContent {
  kFloats,  // the word 0xffffffff, all NaN, arrives as 0x7fffffff, all NaN too
  kBits,    // any bits arrive as they are; half of each word carries them
};

// One half of a rank's region, in bytes.
inline constexpr int64_t kPeerHalfBytes = int64_t{8} << 20;

// The group as the kernels of one rank see it.
struct PeerView {
  int rank;
  int size;
  uint4* own;                 // this rank's region: 2 * kPeerHalfBytes
  uint4* regions[kMaxPeers];  // [size]: every rank's
  // On the rank's own device: how many calls were made, and how many blocks of the current call
  // have begun.
  uint32_t* turn;
  // In the host's memory: not 0 when a rank has failed. Kernels that wait then trap, which fails
  // their stream's work.
  const int* aborted;
};

// How a sum is taken. In one shot each rank sends all of its data to all others; in two each rank
// sums a slice and sends it to the others.
enum class PeerSum { kBySize, kOneShot, kTwoShot };

// Whether kBySize sums `bytes` in one shot and in one piece.
bool is_one_shot(int size, int64_t bytes);
// The most bytes that a two-shot sum takes in one piece.
int64_t max_two_shot_bytes(int size);

// data[i] = sum over ranks of data[i]. float32, bfloat16 or float16; data is aligned to 16 bytes.
void peer_all_reduce(CudaStream& stream, const PeerView& peers, DType dtype, void* data,
                     int64_t count, PeerSum how = PeerSum::kBySize);

// input [rows, columns] of every rank, side by side in rank order, in output [rows, columns *
// size]; with rows_each only rank r's rows [r * rows_each, ...) go to rank r. Columns and strides
// are in bytes.
struct PeerGather {
  const void* input;
  int64_t input_stride;
  void* output;
  int64_t output_stride;
  int64_t rows;
  int64_t columns;
  // 0: all rows go to all ranks. Else the last rank may have fewer rows, but at least one.
  int64_t rows_each = 0;
  PeerContent content = PeerContent::kFloats;
};
void peer_all_gather_columns(CudaStream& stream, const PeerView& peers, const PeerGather& args);

// Every rank's data becomes that of rank `root`. Aligned to 16 bytes.
void peer_broadcast(CudaStream& stream, const PeerView& peers, void* data, int64_t bytes, int root,
                    PeerContent content);

// Loads the kernels for a group of `size` onto the current device: loading one when it is first
// launched may wait for work that waits for this rank.
void load_peer_kernels(int size);

}  // namespace quire
