#include "dist/peer_memory_cuda.h"

#include <atomic>
#include <set>

#include "core/check_cuda.h"
#include "dist/all_reduce_norm_cuda.h"

namespace quire {
namespace {

constexpr size_t kRegionBytes = 2 * kPeerHalfBytes;
constexpr size_t kCounterBytes = 256;
constexpr size_t kWordsBytes = kPeerMemoryBytes - kRegionBytes - kCounterBytes;

bool all_reach_all(std::span<const int> devices) {
  for (const int from : devices) {
    for (const int to : devices) {
      if (from == to) continue;
      int can = 0;
      check_cuda(cudaDeviceCanAccessPeer(&can, from, to), "asking which GPUs reach each other");
      if (can == 0) return false;
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(std::span<const int> devices) {
  if (devices.size() > kMaxPeers || !all_reach_all(devices)) return nullptr;
  return std::unique_ptr<PeerMemory>(new PeerMemory(devices));
}

PeerMemory::PeerMemory(std::span<const int> devices) {
  for (const int device : devices) regions_.push_back({.device = device});
  try {
    void* word = nullptr;
    check_cuda(cudaHostAlloc(&word, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped),
               "pinning host memory");
    aborted_ = static_cast<int*>(word);
    *aborted_ = 0;
    for (Region& region : regions_) allocate(region);
    for (const int device : std::set<int>(devices.begin(), devices.end())) {
      check_cuda(cudaSetDevice(device), "selecting the device");
      load_peer_kernels(static_cast<int>(devices.size()));
      load_all_reduce_norm_kernels(static_cast<int>(devices.size()));
    }
  } catch (...) {
    release();
    throw;
  }
}

PeerMemory::~PeerMemory() {
  release();
}

void PeerMemory::allocate(Region& region) {
  check_cuda(cudaSetDevice(region.device), "selecting the device");
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = region.device};
  check_cuda(cudaMemPoolCreate(&region.pool, &properties), "making a pool of memory for peers");
  for (const Region& peer : regions_) {
    if (peer.device == region.device) continue;
    cudaMemAccessDesc access = {};
    access.location = {.type = cudaMemLocationTypeDevice, .id = peer.device};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check_cuda(cudaMemPoolSetAccess(region.pool, &access, 1), "showing memory to another GPU");
  }
  check_cuda(cudaMallocFromPoolAsync(&region.memory, kPeerMemoryBytes, region.pool, nullptr),
             "allocating memory for peers");
  check_cuda(cudaMemsetAsync(region.memory, 0xff, kRegionBytes, nullptr),
             "clearing memory for peers");
  check_cuda(cudaMemsetAsync(static_cast<std::byte*>(region.memory) + kRegionBytes, 0,
                             kCounterBytes + kWordsBytes, nullptr),
             "clearing memory for peers");
  check_cuda(cudaStreamSynchronize(nullptr), "clearing memory for peers");
}

void PeerMemory::release() {
  // A failure here repeats an earlier one: the context is lost.
  for (Region& region : regions_) {
    cudaSetDevice(region.device);
    if (region.memory != nullptr) cudaFreeAsync(region.memory, nullptr);
    cudaStreamSynchronize(nullptr);
    if (region.pool != nullptr) cudaMemPoolDestroy(region.pool);
  }
  if (aborted_ != nullptr) cudaFreeHost(aborted_);
}

PeerView PeerMemory::view(int rank) const {
  PeerView view = {};
  view.rank = rank;
  view.size = static_cast<int>(regions_.size());
  for (size_t r = 0; r < regions_.size(); ++r) {
    view.regions[r] = static_cast<uint4*>(regions_[r].memory);
  }
  auto* own = static_cast<std::byte*>(regions_[static_cast<size_t>(rank)].memory);
  view.own = reinterpret_cast<uint4*>(own);
  view.turn = reinterpret_cast<uint32_t*>(own + kRegionBytes);
  view.aborted = aborted_;
  return view;
}

PeerWords PeerMemory::words(int rank) const {
  PeerWords words;
  words.rank = rank;
  words.size = static_cast<int>(regions_.size());
  words.count = static_cast<int64_t>(kWordsBytes / sizeof(uint64_t));
  for (size_t r = 0; r < regions_.size(); ++r) {
    auto* region = static_cast<std::byte*>(regions_[r].memory);
    words.regions[r] = reinterpret_cast<uint64_t*>(region + kRegionBytes + kCounterBytes);
  }
  words.aborted = aborted_;
  return words;
}

void PeerMemory::abort() {
  std::atomic_ref<int>(*aborted_).store(1, std::memory_order_release);
}

}  // namespace quire
