#pragma once
// How much memory the process may have, and how much it can still take.
//
// Thread safety: free functions.
#include <cstdint>
#include <filesystem>

namespace quire {

// In bytes: the least of the machine's memory, the limits of the process's control groups (cgroup
// v2 and v1, its own and those above) and its limit of address space. Reads /proc and /sys below
// `root`. A limit that cannot be read is ignored; without any, the largest int64_t.
int64_t memory_limit(const std::filesystem::path& root = "/");

// In bytes: the least of what these limits leave and of the machine's memory that can be taken
// without swapping. File pages that a group has not used lately count as free, because they are
// given up when memory is needed. Of the address space, room for the stacks and heaps of threads
// counts as taken. 0 where a limit is exceeded already; without any, the largest int64_t.
int64_t memory_left(const std::filesystem::path& root = "/");

}  // namespace quire
