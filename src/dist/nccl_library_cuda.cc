#include "dist/nccl_library_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "dist/one_shot_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

template <typename Function>
void find(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr) {
    throw Error(
        fmt::format("NCCL's library has no function {}; install NCCL 2.18 or newer.", name));
  }
}

}  // namespace

std::shared_ptr<const NcclLibrary> NcclLibrary::load() {
  constexpr const char* kMulticast = "NCCL_NVLS_ENABLE";
  const char* multicast = std::getenv(kMulticast);
  if (multicast == nullptr || std::string_view(multicast) != "0") setenv(kMulticast, "0", 1);
  void* handle = nullptr;
  std::string reason;
  for (const char* file : {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != nullptr) return std::shared_ptr<const NcclLibrary>(new NcclLibrary(handle));
    if (reason.empty()) reason = dlerror();
  }
  throw Error(
      fmt::format("GPUs of several processes, and those that do not reach each other's memory or "
                  "are more than {}, need NCCL, and it cannot be loaded: {}. Install NVIDIA's "
                  "package libnccl2.",
                  kMaxPeers, reason));
}

NcclLibrary::NcclLibrary(void* handle) {
  find(handle, "ncclCommInitAll", comm_init_all);
  find(handle, "ncclGetUniqueId", get_unique_id);
  find(handle, "ncclCommInitRank", comm_init_rank);
  find(handle, "ncclGroupStart", group_start);
  find(handle, "ncclGroupEnd", group_end);
  find(handle, "ncclCommDestroy", comm_destroy);
  find(handle, "ncclCommAbort", comm_abort);
  find(handle, "ncclAllReduce", all_reduce);
  find(handle, "ncclAllGather", all_gather);
  find(handle, "ncclBroadcast", broadcast);
  find(handle, "ncclSend", send);
  find(handle, "ncclRecv", receive);
  find(handle, "ncclGetErrorString", get_error_string);
  find(handle, "ncclGetLastError", get_last_error);
}

void NcclLibrary::check_nccl(ncclResult_t status, std::string_view what,
                             const CodePlace& where) const {
  if (status == ncclSuccess) [[likely]]
    return;
  throw Error(fmt::format("NCCL failed while {}: {} ({}, at {}:{}).", what,
                          get_error_string(status), get_last_error(nullptr), where.file,
                          where.line));
}

}  // namespace quire
