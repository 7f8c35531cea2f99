#include "dist/peer_memory_cuda.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "core/check_cuda.h"
#include "dist/all_reduce_norm_cuda.h"

namespace quire {
namespace {

constexpr size_t kRegionBytes = 2 * kPeerHalfBytes;
constexpr size_t kCounterBytes = 256;
constexpr size_t kWordsBytes = kPeerMemoryBytes - kRegionBytes - kCounterBytes;

bool reaches(int from, int to) {
  int can = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can, from, to), "asking which GPUs reach each other");
  return can != 0;
}

bool all_reach_all(std::span<const int> devices) {
  return std::ranges::all_of(devices, [&](int from) {
    return std::ranges::all_of(devices, [&](int to) { return from == to || reaches(from, to); });
  });
}

// What makes a device take a kernel or not.
using Kind = std::array<int32_t, 4>;
Kind kind_of(int device) {
  constexpr std::array<cudaDeviceAttr, std::tuple_size_v<Kind>> kAttributes = {
      cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
      cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin};
  Kind kind;
  for (size_t i = 0; i < kind.size(); ++i) {
    check_cuda(cudaDeviceGetAttribute(&kind[i], kAttributes[i], device),
               "asking for a property of the device");
  }
  return kind;
}

// A host between two of its starts, also in a container.
std::array<char, 36> this_boot() {
  std::array<char, 36> id = {};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size());
  return id;
}

// Processes in different containers may have equal numbers.
uint64_t this_process() {
  static const uint64_t kToken = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) + random();
  }();
  return kToken;
}

void clear(void* memory) {
  check_cuda(cudaMemsetAsync(memory, 0xff, kRegionBytes, nullptr), "clearing memory for peers");
  check_cuda(cudaMemsetAsync(static_cast<std::byte*>(memory) + kRegionBytes, 0,
                             kCounterBytes + kWordsBytes, nullptr),
             "clearing memory for peers");
  check_cuda(cudaStreamSynchronize(nullptr), "clearing memory for peers");
}

// Lets the current device reach all memory of another one of this process.
bool enable_access(int other) {
  const cudaError_t result = cudaDeviceEnablePeerAccess(other, 0);
  if (result == cudaSuccess) return true;
  cudaGetLastError();  // or the next launch reports it
  return result == cudaErrorPeerAccessAlreadyEnabled;
}

}  // namespace

// What a rank tells the others of its memory. Bytes between processes of one version.
struct PeerMemory::Card {
  std::array<char, 36> boot;
  int32_t device;
  uint64_t process;
  uint64_t memory;  // an address in that process
  cudaIpcMemHandle_t handle;
  Kind kind;
  uint32_t is_shown;  // 0: the handle is none
};

std::unique_ptr<PeerMemory> PeerMemory::make(std::span<const int> devices) {
  if (devices.size() > kMaxPeers || !all_reach_all(devices)) return nullptr;
  std::vector<int> ranks(devices.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<PeerMemory> result(
      new PeerMemory(ranks, devices, static_cast<int>(devices.size())));
  for (Place& place : result->places_) result->allocate_for_threads(place);
  for (Place& place : result->places_) {
    for (const Place& other : result->places_) place.of_ranks[other.rank] = other.memory;
  }
  const Kind first = kind_of(devices.front());
  result->is_of_one_kind_ =
      std::ranges::all_of(devices, [&](int device) { return kind_of(device) == first; });
  result->load_kernels();
  return result;
}

std::unique_ptr<PeerMemory> PeerMemory::join(const GroupPart& part) {
  if (part.size > kMaxPeers) return nullptr;
  std::unique_ptr<PeerMemory> result(new PeerMemory(part.ranks, part.indices, part.size));
  for (Place& place : result->places_) result->allocate_for_processes(place);
  const std::vector<std::byte> told = part.exchange(result->describe());
  std::vector<Card> cards(static_cast<size_t>(part.size));
  check(told.size() == cards.size() * sizeof(Card), "each rank tells of its memory");
  std::memcpy(cards.data(), told.data(), told.size());
  // All processes see the same cards, but not what the others can open.
  const uint8_t opened = result->open(cards) ? 1 : 0;
  const std::vector<std::byte> mine(part.ranks.size(), std::byte{opened});
  const std::vector<std::byte> all = part.exchange(mine);
  if (std::ranges::count(all, std::byte{1}) != part.size) {
    // Memory is freed when no process has it open any more.
    result->close();
    part.exchange(mine);
    return nullptr;
  }
  result->is_of_one_kind_ =
      std::ranges::all_of(cards, [&](const Card& card) { return card.kind == cards[0].kind; });
  result->load_kernels();
  return result;
}

PeerMemory::PeerMemory(std::span<const int> ranks, std::span<const int> devices, int size)
    : size_(size) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    places_.push_back({.rank = ranks[i], .device = devices[i]});
  }
  void* word = nullptr;
  check_cuda(cudaHostAlloc(&word, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped),
             "pinning host memory");
  aborted_ = static_cast<int*>(word);
  *aborted_ = 0;
}

void PeerMemory::close() {
  for (Place& place : places_) {
    cudaSetDevice(place.device);
    for (void* memory : place.opened) cudaIpcCloseMemHandle(memory);
    place.opened.clear();
  }
}

PeerMemory::~PeerMemory() {
  // A failure here repeats an earlier one: the context is lost.
  close();
  for (const Place& place : places_) {
    cudaSetDevice(place.device);
    if (place.memory != nullptr && place.pool != nullptr) cudaFreeAsync(place.memory, nullptr);
    if (place.memory != nullptr && place.pool == nullptr) cudaFree(place.memory);
    cudaStreamSynchronize(nullptr);
    if (place.pool != nullptr) cudaMemPoolDestroy(place.pool);
  }
  cudaFreeHost(aborted_);
}

void PeerMemory::allocate_for_threads(Place& place) {
  check_cuda(cudaSetDevice(place.device), "selecting the device");
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = place.device};
  check_cuda(cudaMemPoolCreate(&place.pool, &properties), "making a pool of memory for peers");
  for (const Place& peer : places_) {
    if (peer.device == place.device) continue;
    cudaMemAccessDesc access = {};
    access.location = {.type = cudaMemLocationTypeDevice, .id = peer.device};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check_cuda(cudaMemPoolSetAccess(place.pool, &access, 1), "showing memory to another GPU");
  }
  check_cuda(cudaMallocFromPoolAsync(&place.memory, kPeerMemoryBytes, place.pool, nullptr),
             "allocating memory for peers");
  clear(place.memory);
}

// CUDA shows other processes what cudaMalloc() gives, but nothing of a pool.
void PeerMemory::allocate_for_processes(Place& place) {
  check_cuda(cudaSetDevice(place.device), "selecting the device");
  check_cuda(cudaMalloc(&place.memory, kPeerMemoryBytes), "allocating memory for peers");
  clear(place.memory);
}

void PeerMemory::load_kernels() const {
  std::set<int> devices;
  for (const Place& place : places_) devices.insert(place.device);
  for (const int device : devices) {
    check_cuda(cudaSetDevice(device), "selecting the device");
    load_peer_kernels(size_);
    load_all_reduce_norm_kernels(size_);
  }
}

std::vector<std::byte> PeerMemory::describe() const {
  static_assert(std::is_trivially_copyable_v<Card>);
  std::vector<std::byte> bytes;
  for (const Place& place : places_) {
    check_cuda(cudaSetDevice(place.device), "selecting the device");
    Card card = {};
    card.boot = this_boot();
    card.device = place.device;
    card.process = this_process();
    card.memory = reinterpret_cast<uintptr_t>(place.memory);
    card.kind = kind_of(place.device);
    card.is_shown = cudaIpcGetMemHandle(&card.handle, place.memory) == cudaSuccess ? 1 : 0;
    if (card.is_shown == 0) cudaGetLastError();
    const auto of_card = std::as_bytes(std::span(&card, 1));
    bytes.insert(bytes.end(), of_card.begin(), of_card.end());
  }
  return bytes;
}

bool PeerMemory::open(std::span<const Card> ranks) {
  const auto is_reachable = [boot = this_boot()](const Card& card) {
    return card.process == this_process() || (card.boot == boot && card.is_shown != 0);
  };
  // First: access between GPUs of this process stays.
  if (!std::ranges::all_of(ranks, is_reachable)) return false;
  for (Place& place : places_) {
    check_cuda(cudaSetDevice(place.device), "selecting the device");
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Card& card = ranks[r];
      void*& memory = place.of_ranks[r];
      if (card.process == this_process()) {
        if (card.device != place.device &&
            (!reaches(place.device, card.device) || !enable_access(card.device))) {
          return false;
        }
        memory = reinterpret_cast<void*>(static_cast<uintptr_t>(card.memory));
        continue;
      }
      if (cudaIpcOpenMemHandle(&memory, card.handle, cudaIpcMemLazyEnablePeerAccess) !=
          cudaSuccess) {
        cudaGetLastError();
        return false;
      }
      place.opened.push_back(memory);
    }
  }
  return true;
}

const PeerMemory::Place& PeerMemory::place_of(int rank) const {
  const auto place = std::ranges::find(places_, rank, &Place::rank);
  check(place != places_.end(), "a rank's memory is asked for in its own process");
  return *place;
}

PeerView PeerMemory::view(int rank) const {
  const Place& place = place_of(rank);
  PeerView view = {};
  view.rank = rank;
  view.size = size_;
  for (int r = 0; r < size_; ++r) view.regions[r] = static_cast<uint4*>(place.of_ranks[r]);
  auto* own = static_cast<std::byte*>(place.memory);
  view.own = reinterpret_cast<uint4*>(own);
  view.turn = reinterpret_cast<uint32_t*>(own + kRegionBytes);
  view.aborted = aborted_;
  return view;
}

PeerWords PeerMemory::words(int rank) const {
  const Place& place = place_of(rank);
  PeerWords words;
  words.rank = rank;
  words.size = size_;
  words.count = static_cast<int64_t>(kWordsBytes / sizeof(uint64_t));
  for (int r = 0; r < size_; ++r) {
    auto* memory = static_cast<std::byte*>(place.of_ranks[r]);
    words.regions[r] = reinterpret_cast<uint64_t*>(memory + kRegionBytes + kCounterBytes);
  }
  words.aborted = aborted_;
  return words;
}

void PeerMemory::abort() {
  std::atomic_ref<int>(*aborted_).store(1, std::memory_order_release);
}

}  // namespace quire
