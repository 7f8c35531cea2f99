#pragma once
// Ranks that are threads, each with a GPU of its own: of one process, or of several.
//
// Small tensors go through memory that the GPUs share (dist/one_shot_cuda.h), large ones and send
// and receive through NCCL; where GPUs do not reach each other's memory, as those of several hosts,
// all goes through NCCL. All work is queued on the stream that a call is given, which is of the
// rank's device; calls can be captured in CUDA graphs. Tensors are in device memory, contiguous
// where they are written in place, and aligned to 16 bytes. all_reduce_sum takes float32, bfloat16
// and float16 and rounds once; through shared memory it sums in rank order, through NCCL in an
// order that depends only on the size.
//
// abort() may be called from any thread. Ranks that wait on the host throw. Work that waits on a
// device fails, so that the next check of its stream throws.
#include <memory>
#include <span>
#include <vector>

#include "core/device_library.h"
#include "dist/communicator.h"

namespace quire {

// Element i is for rank i, on device device_indices[i]. Destroy a rank before the streams that it
// was given, or when these are idle. NCCL starts while the ranks load: its errors come with the
// first collective or barrier. Takes 32 MiB of each device in addition to NCCL's own buffers.
// Throws Error when CUDA or NCCL fails; when NCCL is not installed and the devices cannot reach
// each other's memory; and, for several ranks, when a device belongs to another group of this
// process (dist/gpu_claims.h).
std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const int> device_indices);
// As DeviceLibrary::join_group(), with the id of make_nccl_group_id(); the rest as above.
// part.hosts are what barrier() calls. While the other processes have not come, abort() frees the
// ranks, but the thread that waits for them stays until the process ends.
std::vector<std::unique_ptr<Communicator>> join_nccl_group(const GroupPart& part);

}  // namespace quire
