#pragma once
// How the ranks of a group exchange data. Passed as an argument, never a global.
//
// Every rank of the group calls the collectives in the same order with inputs of the same shape. A
// group of one size repeats its sums bit for bit: on the CPU they are taken in rank order, on GPUs
// in an order that depends only on the tensor's size (dist/nccl_cuda.h).
//
// Calls that only copy (all_gather_columns, all_to_all_columns, broadcast, send, receive) take
// elements of any type and keep their bits; on GPUs a floating point NaN may arrive as another NaN.
// Thread safety: each rank has its own Communicator and calls it from its own thread.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/peer_words.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace quire {

// All but the weight are [rows, n], contiguous, of one dtype.
struct AddNorm {
  Tensor x;
  Tensor residual;
  Tensor weight;  // float32[n]
  float eps;
  Tensor out;  // may be x
};

// A rank's share of `rows` rows that are split over a group: the same number for each rank, except
// that the last ranks may have fewer or none.
struct RowShare {
  int64_t begin = 0;
  int64_t end = 0;

  RowShare(int64_t rows, int rank, int size)
      : begin(std::min(rows, rank * rows_each(rows, size))),
        end(std::min(rows, begin + rows_each(rows, size))) {}
  int64_t size() const { return end - begin; }
  static int64_t rows_each(int64_t rows, int size) { return ceil_div(rows, size); }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // tensor[i] = sum over ranks of tensor[i], in place. Contiguous; float32, on GPUs bfloat16 and
  // float16 too.
  virtual void all_reduce_sum(Stream& stream, const Tensor& tensor) = 0;
  // x = sum over ranks of x, residual += x, out = RMS norm of residual, times weight:
  // all_reduce_sum and ops::add_rms_norm in one kernel. Returns false and does nothing where there
  // is no such kernel.
  virtual bool all_reduce_add_norm(Stream&, const AddNorm&) { return false; }
  // input [rows, cols] of every rank, side by side in rank order: output [rows, cols * size()];
  // input may be its own place in output.
  virtual void all_gather_columns(Stream& stream, const Tensor& input, const Tensor& output) = 0;
  // As all_gather_columns, but each rank gets only its share of the rows (RowShare): output
  // [share.size(), cols * size()], which does not overlap input. Every rank has rows. Only where
  // splits_rows().
  virtual void all_to_all_columns(Stream&, const Tensor& /*input*/, const Tensor& /*output*/) {
    check(false, "all_to_all_columns is for groups that split rows");
  }
  // Whether all_to_all_columns exists; the same on every rank.
  virtual bool splits_rows() const { return false; }
  // Every rank's tensor becomes that of rank `root`.
  virtual void broadcast(Stream& stream, const Tensor& tensor, int root) = 0;
  // Hands a contiguous tensor to rank `to`, which receives one of the same shape and type from this
  // rank. The other ranks take no part. Tensors from one rank to another arrive in the order in
  // which they were sent. On the CPU send() copies the tensor and returns: the sender never waits
  // for the receiver, so two ranks may send to each other. On GPUs both queue their work on NCCL
  // (Error where it is not installed, or where the two ranks share a GPU).
  virtual void send(Stream& stream, const Tensor& tensor, int to) = 0;
  virtual void receive(Stream& stream, const Tensor& tensor, int from) = 0;
  // This rank's words, for the use of one kernel; to be called once. None where the GPUs cannot
  // reach each other's memory, or are of different kinds.
  virtual PeerWords peer_words() { return {}; }
  virtual void barrier() = 0;
  // Ends the group: ranks that wait for others, now or later, throw Error. From any thread.
  virtual void abort() = 0;
};

// A group of one: every collective is a no-op or a copy.
std::unique_ptr<Communicator> make_single_communicator();
// A rank of a group that does not exist, for streams that only check: every collective is a no-op.
std::unique_ptr<Communicator> make_idle_communicator(int rank, int size);
// A group of `size` ranks that are threads of this process; element i is for rank i. `num_threads`:
// the threads of this process that work at once, where these are more than `size`. Ranks spin while
// they wait for each other only if each of these threads can have a CPU.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, int num_threads = 0);

}  // namespace quire
