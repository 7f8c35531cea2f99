// What loading a checkpoint onto a GPU is made of, in GB/s: pinning memory, reading a file that is
// in the page cache, copying to the device, and core/uploader_cuda.h, which does all of it.
//
//   upload_bench [file to make]    4 GB; by default ./upload_bench.tmp, removed again
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/check_cuda.h"
#include "core/uploader_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr size_t kFileBytes = size_t{4} << 30;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPieces = kFileBytes / kPieceBytes;

void report(const std::string& name, size_t bytes, const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{:<46} {:>9.2f} ms {:>8.2f} GB/s\n", name, seconds * 1e3,
             static_cast<double>(bytes) / seconds / 1e9);
  std::fflush(stdout);
}

// Calls body(piece, thread) for all pieces.
void for_pieces(int num_threads, const std::function<void(size_t, int)>& body) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t piece; (piece = next.fetch_add(1)) < kPieces;) body(piece, t);
    });
  }
  for (auto& thread : threads) thread.join();
}

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd_ < 0) throw Error(fmt::format("{} cannot be made.", path_));
    std::vector<uint64_t> values(kPieceBytes / sizeof(uint64_t));
    uint64_t x = 88172645463325252u;
    for (auto& value : values) value = x = (x ^ (x << 13)) * 0x9e3779b97f4a7c15u;
    for (size_t piece = 0; piece < kPieces; ++piece) {
      if (write(fd_, values.data(), kPieceBytes) != static_cast<ssize_t>(kPieceBytes)) {
        throw Error(fmt::format("{} cannot be written.", path_));
      }
    }
  }
  ~File() {
    close(fd_);
    unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::byte* map() const {
    void* memory = mmap(nullptr, kFileBytes, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (memory == MAP_FAILED) throw Error(fmt::format("{} cannot be mapped.", path_));
    return static_cast<const std::byte*>(memory);
  }
  static void unmap(const std::byte* memory) { munmap(const_cast<std::byte*>(memory), kFileBytes); }
  void read(size_t piece, std::byte* to) const {
    const auto at = static_cast<off_t>(piece * kPieceBytes);
    if (pread(fd_, to, kPieceBytes, at) != static_cast<ssize_t>(kPieceBytes)) std::terminate();
  }

 private:
  std::string path_;
  int fd_;
};

void time_pinning() {
  for (const size_t bytes : {size_t{2} << 20, size_t{64} << 20}) {
    void* memory = nullptr;
    report(fmt::format("cudaHostAlloc, {} MiB", bytes >> 20), bytes,
           [&] { check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinning"); });
    report("cudaFreeHost of it", bytes, [&] { cudaFreeHost(memory); });
  }
  std::vector<void*> slots(32);
  report("cudaHostAlloc, 32 x 2 MiB", size_t{64} << 20, [&] {
    for (void*& slot : slots) check_cuda(cudaHostAlloc(&slot, 2 << 20, 0), "pinning");
  });
  for (void* slot : slots) cudaFreeHost(slot);
  report("cudaHostAlloc, 32 x 2 MiB from 8 threads", size_t{64} << 20, [&] {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < slots.size(); i += 8) {
          check_cuda(cudaHostAlloc(&slots[i], 2 << 20, 0), "pinning");
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
  for (void* slot : slots) cudaFreeHost(slot);
  constexpr size_t kBytes = size_t{64} << 20;
  void* huge =
      mmap(nullptr, kBytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(huge) + (2 << 20) - 1) &
                                          ~uintptr_t{(2 << 20) - 1});
  report("mmap in huge pages, 64 MiB, touched", kBytes, [&] {
    madvise(aligned, kBytes, MADV_HUGEPAGE);
    std::memset(aligned, 0, kBytes);
  });
  report("cudaHostRegister of it", kBytes,
         [&] { check_cuda(cudaHostRegister(aligned, kBytes, 0), "pinning"); });
  report("cudaHostUnregister of it", kBytes, [&] { cudaHostUnregister(aligned); });
  munmap(huge, kBytes + (2 << 20));
}

void time_copies(void* device) {
  void* pinned = nullptr;
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr size_t kTotal = size_t{1} << 30;
  check_cuda(cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault), "pinning");
  std::memset(pinned, 1, kBytes);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "making a stream");
  for (const size_t piece :
       {size_t{256} << 10, size_t{1} << 20, size_t{2} << 20, size_t{16} << 20}) {
    report(fmt::format("to the device, pinned, pieces of {} KiB", piece >> 10), kTotal, [&] {
      for (size_t at = 0; at < kTotal; at += piece) {
        check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(device) + at,
                                   static_cast<std::byte*>(pinned) + at % kBytes, piece,
                                   cudaMemcpyHostToDevice, stream),
                   "copying");
      }
      check_cuda(cudaStreamSynchronize(stream), "copying");
    });
  }
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
}

void time_reading(const File& file) {
  for (const int threads : {1, 4, 8, 16}) {
    std::vector<std::vector<std::byte>> to(static_cast<size_t>(threads));
    for (auto& buffer : to) buffer.resize(kPieceBytes, std::byte{1});
    const std::byte* mapped = file.map();
    const auto copy_mapped = [&](size_t piece, int t) {
      std::memcpy(to[static_cast<size_t>(t)].data(), mapped + piece * kPieceBytes, kPieceBytes);
    };
    report(fmt::format("memcpy from the mapped file, {} threads", threads), kFileBytes,
           [&] { for_pieces(threads, copy_mapped); });
    report("the same again, pages mapped", kFileBytes, [&] { for_pieces(threads, copy_mapped); });
    File::unmap(mapped);
    report(fmt::format("pread, {} threads", threads), kFileBytes, [&] {
      for_pieces(threads,
                 [&](size_t piece, int t) { file.read(piece, to[static_cast<size_t>(t)].data()); });
    });
  }
}

void time_uploader(const File& file, void* device) {
  auto* to = static_cast<std::byte*>(device);
  for (const int threads : {4, 8, 16}) {
    const std::byte* mapped = file.map();
    const auto upload_mapped = [&](Uploader& uploader, size_t piece) {
      uploader.upload(to + piece * kPieceBytes, kPieceBytes, [&](std::byte* from) {
        std::memcpy(from, mapped + piece * kPieceBytes, kPieceBytes);
      });
    };
    {
      Uploader uploader(0);
      report("Uploader, 32 pieces of 1 MiB", 32 * kPieceBytes, [&] {
        for (size_t piece = 0; piece < 32; ++piece) upload_mapped(uploader, piece);
        uploader.finish();
      });
    }
    report(fmt::format("Uploader from the mapped file, {} threads", threads), kFileBytes, [&] {
      Uploader uploader(0);
      for_pieces(threads, [&](size_t piece, int) { upload_mapped(uploader, piece); });
      const auto start = std::chrono::steady_clock::now();
      uploader.finish();
      fmt::print(
          "finish() took {:.2f} ms of\n",
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e3);
    });
    File::unmap(mapped);
    report(fmt::format("Uploader with pread, {} threads", threads), kFileBytes, [&] {
      Uploader uploader(0);
      for_pieces(threads, [&](size_t piece, int) {
        uploader.upload(to + piece * kPieceBytes, kPieceBytes,
                        [&](std::byte* from) { file.read(piece, from); });
      });
      uploader.finish();
    });
  }
}

int run(const std::string& path) {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) {
    fmt::print("There is no GPU: nothing to measure.\n");
    return 0;
  }
  void* device = nullptr;
  report("starting CUDA", 0, [&] { check_cuda(cudaFree(nullptr), "starting CUDA"); });
  check_cuda(cudaMalloc(&device, kFileBytes), "allocating");
  time_pinning();
  time_copies(device);
  const File file(path);
  time_reading(file);
  time_uploader(file, device);
  cudaFree(device);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::run(argc > 1 ? argv[1] : "upload_bench.tmp");
  } catch (const std::exception& error) {
    fmt::print(stderr, "upload_bench: {}\n", error.what());
    return 1;
  }
}
