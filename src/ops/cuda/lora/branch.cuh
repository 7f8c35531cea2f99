#pragma once
// Branches of a graph that is being captured: work that the stream's next kernels do not wait for.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "core/check_cuda.h"
#include "core/stream_cuda.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops::cuda {

// What the next work of a stream waits for.
struct CapturePoint {
  bool is_captured = false;
  std::vector<cudaGraphNode_t> nodes = {};
  std::vector<cudaGraphEdgeData> edges = {};
};

inline CapturePoint capture_point(const CudaStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  check_cuda(
      cudaStreamGetCaptureInfo(stream.get(), &status, nullptr, nullptr, &nodes, &edges, &count),
      "looking at a capture");
  if (status != cudaStreamCaptureStatusActive) return {};
  CapturePoint point = {true, {nodes, nodes + count}, std::vector<cudaGraphEdgeData>(count)};
  if (edges != nullptr) std::copy_n(edges, count, point.edges.begin());
  return point;
}

// Queues what launch() does, one kernel, and puts the stream back to where it was before.
template <typename Launch>
void launch_branch(CudaStream& stream, LoraBranch* branch, const Launch& launch) {
  if (branch != nullptr) branch->kernel = nullptr;
  CapturePoint before;
  if (branch != nullptr) before = capture_point(stream);
  launch();
  if (!before.is_captured || before.nodes.empty()) return;
  const CapturePoint after = capture_point(stream);
  check(after.nodes.size() == 1, "a launch is one node of a graph");
  branch->kernel = after.nodes[0];
  check_cuda(
      cudaStreamUpdateCaptureDependencies(stream.get(), before.nodes.data(), before.edges.data(),
                                          before.nodes.size(), cudaStreamSetCaptureDependencies),
      "leaving a branch of a graph");
}

// What comes next in the stream waits for the branch, too.
inline void join_branch(CudaStream& stream, LoraBranch* branch) {
  if (branch == nullptr || branch->kernel == nullptr) return;
  auto* node = static_cast<cudaGraphNode_t>(branch->kernel);
  branch->kernel = nullptr;
  check_cuda(cudaStreamUpdateCaptureDependencies(stream.get(), &node, nullptr, 1,
                                                 cudaStreamAddCaptureDependencies),
             "joining a branch of a graph");
}

}  // namespace quire::ops::cuda
