#pragma once
// How much memory the process may have.
//
// Thread safety: a free function.
#include <cstdint>
#include <filesystem>

namespace quire {

// In bytes: the least of the machine's memory, what its control groups allow (cgroup v2 and v1, its
// own and those above it) and its limit of address space. Reads /proc and /sys below `root`. What
// cannot be read counts as no limit; without any, the largest int64_t.
int64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace quire
