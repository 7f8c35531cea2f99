#include "core/device_stream_cuda.h"

#include <cstring>
#include <utility>

#include "core/check_cuda.h"

namespace quire {
namespace {

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(cudaStream_t stream, EventWait wait) {
    const unsigned flags = wait == EventWait::kSleep ? cudaEventBlockingSync : cudaEventDefault;
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "making an event");
    check_cuda(cudaEventRecord(event_, stream), "recording an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  cudaEvent_t get() const { return event_; }

  void wait() override { check_cuda(cudaEventSynchronize(event_), "running a step on the GPU"); }

  double seconds_since(const DeviceEvent& earlier) const override {
    float milliseconds = 0;
    const cudaEvent_t from = static_cast<const CudaEvent&>(earlier).event_;
    check_cuda(cudaEventElapsedTime(&milliseconds, from, event_), "timing a step on the GPU");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "making a CUDA graph");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  cudaGraphExec_t get() const { return executable_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class CudaDeviceStream final : public DeviceStream {
 public:
  CudaDeviceStream(int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms)
      : stream_(index, std::move(algorithms)) {}

  CudaStream& cuda() override { return stream_; }

  void copy_to_device(void* to, const void* pinned, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream_.get()),
               "copying a step's inputs to the GPU");
  }

  void copy_to_host(void* pinned, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
               "copying a step's results from the GPU");
  }

  void copy_on_device(void* to, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
               "copying what a step hands on");
  }

  std::unique_ptr<DeviceEvent> record(EventWait wait) override {
    return std::make_unique<CudaEvent>(stream_.get(), wait);
  }

  void wait_for(const DeviceEvent& event) override {
    check_cuda(cudaStreamWaitEvent(stream_.get(), static_cast<const CudaEvent&>(event).get()),
               "waiting for another stream");
  }

  void synchronize() override {
    check_cuda(cudaStreamSynchronize(stream_.get()), "running a step on the GPU");
  }

  void begin_capture() override {
    check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
               "capturing a CUDA graph");
  }

  std::unique_ptr<DeviceGraph> end_capture() override {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_.get(), &graph), "capturing a CUDA graph");
    return std::make_unique<CudaGraph>(graph);
  }

  void abandon_capture() noexcept override {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_.get(), &graph);  // fails where the capture is not valid any more
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }

  void launch(DeviceGraph& graph) override {
    check_cuda(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_.get()),
               "launching a CUDA graph");
  }

 private:
  CudaStream stream_;
};

class CudaPinnedBuffer final : public PinnedBuffer {
 public:
  explicit CudaPinnedBuffer(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pinning host memory");
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 0, bytes);
  }
  ~CudaPinnedBuffer() override { cudaFreeHost(data_); }
  CudaPinnedBuffer(const CudaPinnedBuffer&) = delete;
  CudaPinnedBuffer& operator=(const CudaPinnedBuffer&) = delete;

  std::byte* data() override { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceStream> make_cuda_device_stream(
    int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms) {
  return std::make_unique<CudaDeviceStream>(index, std::move(algorithms));
}

std::unique_ptr<PinnedBuffer> allocate_cuda_pinned(size_t bytes) {
  return std::make_unique<CudaPinnedBuffer>(bytes);
}

}  // namespace quire
