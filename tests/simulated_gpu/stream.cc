#include "simulated_gpu/stream.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace simulated {
namespace {

constexpr std::string_view kRunning = "running a step on the GPU";
constexpr std::string_view kCapturing = "capturing a CUDA graph";

// As check_cuda() words it (core/check_cuda.h).
Error cuda_error(std::string_view what, std::string_view reason) {
  return Error(fmt::format("CUDA failed while {}: {}.", what, reason));
}

}  // namespace

StreamQueue::StreamQueue(Gpu& gpu) : gpu_(gpu), thread_([this] { work(); }) {}

StreamQueue::~StreamQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  has_work_.notify_one();
  thread_.join();
}

void StreamQueue::push(Task task) {
  bool was_idle = false;
  {
    const std::lock_guard lock(mutex_);
    was_idle = !has_work();
    tasks_.push_back(std::move(task));
    ++num_queued_;
  }
  if (was_idle) has_work_.notify_one();
}

uint64_t StreamQueue::size() {
  const std::lock_guard lock(mutex_);
  return num_queued_;
}

void StreamQueue::wait_until_done(std::unique_lock<std::mutex>& lock, uint64_t position) {
  if (num_done_ >= position) return;
  want(position);
  const auto awaited = awaited_.insert(position);
  is_done_.wait(lock, [&] { return num_done_ >= position; });
  awaited_.erase(awaited);
}

void StreamQueue::want(uint64_t position) {
  if (position <= num_wanted_) return;
  num_wanted_ = position;
  if (gpu_.pace() == Pace::kLazy) has_work_.notify_one();
}

void StreamQueue::wait(uint64_t position, std::string_view what) {
  std::unique_lock lock(mutex_);
  wait_until_done(lock, position);
  if (failed_ != 0 && failed_ <= position) throw cuda_error(what, error_);
}

void StreamQueue::pass(uint64_t position) {
  std::unique_lock lock(mutex_);
  wait_until_done(lock, position);
}

void StreamQueue::finish() {
  std::unique_lock lock(mutex_);
  wait_until_done(lock, num_queued_);
}

void StreamQueue::begin() {
  const std::lock_guard lock(mutex_);
  want(num_queued_);
}

bool StreamQueue::has_work() const {
  return !tasks_.empty() && (is_closed_ || gpu_.pace() != Pace::kLazy || num_done_ < num_wanted_);
}

void StreamQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return has_work() || is_closed_; });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    if (failed_ == 0) {
      lock.unlock();
      std::string error = run(task);
      lock.lock();
      if (!error.empty()) {
        error_ = std::move(error);
        failed_ = num_done_ + 1;
      }
    }
    ++num_done_;
    if (!awaited_.empty() && *awaited_.begin() <= num_done_) is_done_.notify_all();
  }
}

std::string StreamQueue::run(const Task& task) {
  gpu_.wait_to_begin(task.name);
  if (gpu_.is_faulty(task.name)) {
    return fmt::format("an illegal memory access was encountered (cudaErrorIllegalAddress, in {})",
                       task.name);
  }
  try {
    task.run();
  } catch (const Error&) {
    // A collective whose group was ended; the kernel of a real GPU traps.
    return fmt::format("unspecified launch failure (cudaErrorLaunchFailure, in {})", task.name);
  }
  return {};
}

}  // namespace simulated

CudaStream::CudaStream(simulated::Gpu& gpu, std::shared_ptr<const ops::LinearAlgorithms> algorithms)
    : gpu_(gpu),
      linear_algorithms_(algorithms != nullptr ? std::move(algorithms)
                                               : std::make_shared<ops::LinearAlgorithms>()),
      work_(std::make_shared<simulated::StreamQueue>(gpu)) {
  gpu_.add(*this);
}

CudaStream::~CudaStream() {
  gpu_.remove(*this);
}

void CudaStream::take_memory_for(std::string_view what) const {
  if (!gpu_.is_faulty(fmt::format("memory_for_{}", what))) return;
  throw OutOfDeviceMemory(fmt::format(
      "CUDA failed while launching {}: out of memory (cudaErrorMemoryAllocation).", what));
}

void CudaStream::replay(const std::vector<simulated::Task>& tasks) {
  take_memory_for("graph_launch");
  for (const simulated::Task& task : tasks) work_->push(task);
}

void CudaStream::queue(std::string_view name, std::function<void()> run) {
  take_memory_for(name);
  if (gpu_.pace() == simulated::Pace::kInstant && !name.starts_with("copy_to_")) return;
  simulated::Task task{name, std::move(run)};
  if (is_capturing_) {
    captured_.push_back(std::move(task));
  } else {
    work_->push(std::move(task));
  }
}

void CudaStream::check_not_capturing(std::string_view what) const {
  if (!is_capturing_) return;
  throw simulated::cuda_error(
      what, "operation not permitted when stream is capturing (cudaErrorStreamCaptureUnsupported)");
}

void CudaStream::begin_capture() {
  check_not_capturing(simulated::kCapturing);
  is_capturing_ = true;
}

std::vector<simulated::Task> CudaStream::end_capture() {
  is_capturing_ = false;
  return std::exchange(captured_, {});
}

namespace simulated {
namespace {

class SimulatedEvent final : public DeviceEvent {
 public:
  explicit SimulatedEvent(std::shared_ptr<StreamQueue> work)
      : work_(std::move(work)), position_(work_->size() + 1) {
    work_->push({"event", [time = time_] { *time = std::chrono::steady_clock::now(); }});
  }

  void wait() override { work_->wait(position_, kRunning); }

  // wait() as a task of another stream, which may outlive the event.
  std::function<void()> wait_later() const {
    return [work = work_, position = position_] { work->pass(position); };
  }

  double seconds_since(const DeviceEvent& earlier) const override {
    const auto& began = static_cast<const SimulatedEvent&>(earlier);
    return std::chrono::duration<double>(*time_ - *began.time_).count();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::shared_ptr<Time> time_ = std::make_shared<Time>();  // when the stream came here
  std::shared_ptr<StreamQueue> work_;
  uint64_t position_;
};

// The tasks that were captured, with the pointers that they had.
class SimulatedGraph final : public DeviceGraph {
 public:
  explicit SimulatedGraph(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  std::vector<Task> tasks_;
};

class SimulatedStream final : public DeviceStream {
 public:
  SimulatedStream(Gpu& gpu, std::shared_ptr<const ops::LinearAlgorithms> algorithms)
      : stream_(gpu, std::move(algorithms)) {}

  CudaStream& cuda() override { return stream_; }

  void copy_to_device(void* to, const void* pinned, size_t bytes) override {
    stream_.queue("copy_to_device", [=] { std::memcpy(to, pinned, bytes); });
  }

  void copy_to_host(void* pinned, const void* from, size_t bytes) override {
    stream_.queue("copy_to_host", [=] { std::memcpy(pinned, from, bytes); });
  }

  void copy_on_device(void* to, const void* from, size_t bytes) override {
    stream_.queue("copy_on_device", [=] { std::memcpy(to, from, bytes); });
  }

  void wait_for(const DeviceEvent& event) override {
    stream_.check_not_capturing("waiting for another stream");
    stream_.queue("wait_for", static_cast<const SimulatedEvent&>(event).wait_later());
  }

  std::unique_ptr<DeviceEvent> record(EventWait) override {
    stream_.check_not_capturing("recording an event");
    return std::make_unique<SimulatedEvent>(stream_.work());
  }

  void synchronize() override {
    stream_.check_not_capturing(kRunning);
    stream_.work()->wait(stream_.work()->size(), kRunning);
  }

  void begin_capture() override { stream_.begin_capture(); }

  std::unique_ptr<DeviceGraph> end_capture() override {
    std::vector<Task> tasks = stream_.end_capture();
    stream_.take_memory_for("graph");
    return std::make_unique<SimulatedGraph>(std::move(tasks));
  }

  void abandon_capture() noexcept override { stream_.end_capture(); }

  void launch(DeviceGraph& graph) override {
    stream_.replay(static_cast<SimulatedGraph&>(graph).tasks());
  }

 private:
  CudaStream stream_;
};

}  // namespace

std::unique_ptr<DeviceStream> make_stream(Gpu& gpu,
                                          std::shared_ptr<const ops::LinearAlgorithms> algorithms) {
  return std::make_unique<SimulatedStream>(gpu, std::move(algorithms));
}

}  // namespace simulated
}  // namespace quire
