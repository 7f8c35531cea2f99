#pragma once
// Collectives of GPUs that reach each other's memory, for what is too small for NCCL to be quick.
//
// Every rank has a region of memory that all ranks write to, cut into two halves that calls take in
// turn. A word that nobody has written holds kEmptyWord. A rank puts what it has to say straight
// into the regions of the others and waits until the words that it expects are in its own; so data
// is its own signal, no fence and no flag is needed, and a call takes one trip over the link. The
// reader empties a word again as soon as it has it. Two halves are enough: a rank that is in call
// i + 2 has finished call i + 1, for which it has heard from everybody, and a rank speaks in call
// i + 1 only when its call i is over. That holds because in every call everybody hears from
// everybody, be it through a third. Which half is whose turn is counted on the device, so that
// graphs can be replayed.
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

// In floating point numbers it is NaN, one or several; the word that is sent instead is so too.
inline constexpr uint32_t kEmptyWord = 0xffffffff;

// What a call copies.
enum class PeerContent {
  kFloats,  // the word 0xffffffff, all NaN, arrives as 0x7fffffff, all NaN too
  kBits,    // any bits arrive as they are, in words of which half is used
};

// One half of a rank's region, in bytes.
inline constexpr int64_t kPeerHalfBytes = int64_t{8} << 20;

// The group as the kernels of one rank see it.
struct PeerView {
  int rank;
  int size;
  uint4* own;                 // this rank's region: 2 * kPeerHalfBytes
  uint4* regions[kMaxPeers];  // [size]: every rank's
  // On the rank's own device: calls so far, and how many blocks of this one have begun.
  uint32_t* turn;
  // In the host's memory: not 0 when a rank has failed. Kernels that wait then trap, which fails
  // their stream's work.
  const int* aborted;
};

// How a sum is taken. In one shot everybody sends everything to everybody; in two each rank sums a
// slice and sends it to the others.
enum class PeerSum { kBySize, kOneShot, kTwoShot };

// Whether kBySize is one shot, and in one piece.
bool is_one_shot(int size, int64_t bytes);
// What a sum in two shots takes in one piece at most.
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
  // 0: all rows go to everybody. Else the last rank may have fewer, but none has none.
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
