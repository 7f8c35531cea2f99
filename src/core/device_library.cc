#include "core/device_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "quire/version.h"

namespace quire {
namespace {

constexpr const char* kFile = "libquire_cuda.so";
constexpr const char* kEntry = "quire_cuda_library";
// Returns null where the library is of another version than `version`.
using Entry = DeviceLibrary* (*)(const char* version);

std::filesystem::path program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : program.parent_path();
}

std::vector<std::filesystem::path> candidates() {
  const std::filesystem::path here = program_folder();
  return {here / kFile, here / "../src" / kFile, here / "../lib/quire" / kFile,
          here / "../lib/x86_64-linux-gnu/quire" / kFile};
}

}  // namespace

LoadedLibrary load_cuda_library() {
  const char* given = std::getenv("QUIRE_CUDA_LIBRARY");
  if (given != nullptr && *given == '\0') {
    return {nullptr, "QUIRE_CUDA_LIBRARY is empty, which turns the CUDA backend off."};
  }
  std::error_code ignored;
  std::filesystem::path file;
  for (const auto& candidate : given ? std::vector<std::filesystem::path>{given} : candidates()) {
    if (std::filesystem::exists(candidate, ignored)) {
      file = candidate;
      break;
    }
  }
  if (file.empty() && given != nullptr) {
    return {nullptr, fmt::format("{}, which QUIRE_CUDA_LIBRARY names, does not exist.", given)};
  }
  if (file.empty()) {
    return {nullptr,
            fmt::format("{} was not found: this is quire without its CUDA package.", kFile)};
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return {nullptr, fmt::format("{} cannot be loaded: {}.", file.string(), dlerror())};
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kEntry));
  if (entry == nullptr) {
    return {nullptr, fmt::format("{} is no library of quire's.", file.string())};
  }
  std::shared_ptr<DeviceLibrary> library(entry(std::string(version()).c_str()));
  if (!library) {
    return {nullptr,
            fmt::format("{} is of another version than quire {}; install both of one version.",
                        file.string(), version())};
  }
  return {std::move(library), file.string()};
}

}  // namespace quire
