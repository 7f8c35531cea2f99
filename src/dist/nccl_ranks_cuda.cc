#include "dist/nccl_ranks_cuda.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "core/check_cuda.h"
#include "quire/error.h"

namespace quire {

static_assert(sizeof(ncclUniqueId) <= kMaxGroupIdBytes);

NcclRanks::Started::~Started() {
  for (const Comm& comm : comms) {
    if (comm.nccl != nullptr) library->comm_destroy(comm.nccl);
  }
}

void NcclRanks::Started::start(const Init& init) {
  std::vector<ncclComm_t> made(comms.size());
  std::exception_ptr problem;
  try {
    init(made);
  } catch (...) {
    problem = std::current_exception();
  }
  bool comes_late = false;
  {
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < made.size(); ++i) comms[i].nccl = made[i];
    error = problem;
    is_done = true;
    comes_late = is_aborted;
  }
  changed.notify_all();
  if (!comes_late) return;
  for (Comm& comm : comms) abort_one(comm);
}

void NcclRanks::Started::abort_one(Comm& comm) {
  ncclComm_t nccl = nullptr;
  {
    // A rank may wait inside of NCCL for the one that failed; then this is what frees it.
    constexpr std::chrono::seconds kPatience{1};
    const std::unique_lock lock(comm.mutex, kPatience);
    nccl = std::exchange(comm.nccl, nullptr);
  }
  if (nccl != nullptr) library->comm_abort(nccl);
}

NcclRanks::NcclRanks(std::shared_ptr<const NcclLibrary> library, size_t size, const Init& init,
                     std::optional<double> timeout_s)
    : started_(std::make_shared<Started>(std::move(library), size)),
      timeout_s_(timeout_s),
      starter_([started = started_, init] { started->start(init); }) {}

NcclRanks::NcclRanks(std::shared_ptr<const NcclLibrary> library, std::span<const int> devices)
    : NcclRanks(
          library, devices.size(),
          [library, on = std::vector<int>(devices.begin(), devices.end())](auto comms) {
            library->check_nccl(
                library->comm_init_all(comms.data(), static_cast<int>(on.size()), on.data()),
                "starting");
          },
          std::nullopt) {}

NcclRanks::NcclRanks(std::shared_ptr<const NcclLibrary> library, const GroupPart& part)
    : NcclRanks(
          library, part.ranks.size(),
          [library, size = part.size, ranks = part.ranks, devices = part.indices,
           bytes = part.id](auto comms) {
            ncclUniqueId id;
            check(bytes.size() == sizeof(id), "the id of a group is NCCL's");
            std::memcpy(&id, bytes.data(), sizeof(id));
            library->check_nccl(library->group_start(), "starting");
            for (size_t i = 0; i < ranks.size(); ++i) {
              check_cuda(cudaSetDevice(devices[i]), "selecting the device");
              library->check_nccl(library->comm_init_rank(&comms[i], size, id, ranks[i]),
                                  "joining the ranks of other processes");
            }
            library->check_nccl(library->group_end(), "joining the ranks of other processes");
          },
          part.timeout_s) {}

NcclRanks::~NcclRanks() {
  constexpr std::chrono::seconds kPatience{2};
  bool has_started = true;
  bool has_aborted = true;
  {
    std::unique_lock lock(started_->mutex);
    if (timeout_s_ && !started_->is_done) {
      started_->is_aborted = true;  // should they come yet
      has_started = false;
    }
    has_aborted =
        started_->changed.wait_for(lock, kPatience, [this] { return started_->num_aborting == 0; });
  }
  for (std::thread& aborter : aborters_) has_aborted ? aborter.join() : aborter.detach();
  has_started ? starter_.join() : starter_.detach();
}

void NcclRanks::wait_until_started() const {
  std::unique_lock lock(started_->mutex);
  const auto is_over = [this] { return started_->is_done || started_->is_aborted; };
  if (!timeout_s_) {
    started_->changed.wait(lock, is_over);
  } else if (!started_->changed.wait_for(lock, std::chrono::duration<double>(*timeout_s_),
                                         is_over)) {
    throw Error(fmt::format(
        "After {:g} s (--join-timeout) NCCL has not met the ranks of other processes; expected a "
        "network by which the hosts reach each other, which NCCL_SOCKET_IFNAME can name.",
        *timeout_s_));
  }
  if (started_->error) std::rethrow_exception(started_->error);
}

void NcclRanks::abort() {
  const std::lock_guard lock(started_->mutex);
  if (std::exchange(started_->is_aborted, true)) return;
  started_->changed.notify_all();
  if (!started_->is_done) return;
  // At the same time: a rank may go only when the kernels of all have ended.
  for (Comm& comm : started_->comms) {
    ++started_->num_aborting;
    aborters_.emplace_back([started = started_, &comm] {
      started->abort_one(comm);
      const std::lock_guard done(started->mutex);
      --started->num_aborting;
      started->changed.notify_all();
    });
  }
}

std::vector<std::byte> make_nccl_group_id() {
  const auto library = NcclLibrary::load();
  ncclUniqueId id = {};
  library->check_nccl(library->get_unique_id(&id), "making the id of a group");
  std::vector<std::byte> bytes(sizeof(id));
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

}  // namespace quire
