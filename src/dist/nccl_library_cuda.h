#pragma once
// NVIDIA's NCCL, opened at run time where it is needed: one GPU works without it.
//
// Thread safety: free, as NCCL is.
#include <nccl.h>

#include <memory>
#include <string_view>

#include "base/check.h"

namespace quire {

class NcclLibrary {
 public:
  // Throws Error where NCCL is not installed. Loaded once, it stays until the process ends.
  //
  // NVLink multicast is switched off for the process (NCCL_NVLS_ENABLE=0): a program that ends
  // badly while it is in use can leave the machine's switches in need of a reset. Call it before
  // other threads look at the environment.
  static std::shared_ptr<const NcclLibrary> load();

  decltype(&ncclCommInitAll) comm_init_all;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) comm_init_rank;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;

  // Throws Error with NCCL's own words. `what` says what the call was for.
  void check_nccl(ncclResult_t status, std::string_view what,
                  const CodePlace& where = CodePlace::current()) const;

 private:
  explicit NcclLibrary(void* handle);
};

}  // namespace quire
