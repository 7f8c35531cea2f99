#pragma once
// How much memory the process may have.
//
// Thread safety: a free function.
#include <cstdint>
#include <filesystem>

namespace quire {

// In bytes: the least of the machine's memory, the limits of the process's control groups (cgroup
// v2 and v1, its own and those above) and its limit of address space. Reads /proc and /sys below
// `root`. A limit that cannot be read is ignored; without any, the largest int64_t.
int64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace quire
