#include "core/device_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/installation.h"

namespace quire {
namespace {

constexpr const char* kFile = "libquire_cuda.so";
constexpr const char* kEntry = "quire_cuda_library";
using Entry = DeviceLibrary* (*)(const char* version);

// Where `cmake --install` and the packages put it.
std::filesystem::path installed_folder() {
  std::error_code error;
  return installation_prefix(error) / QUIRE_CUDA_FOLDER;
}

std::vector<std::filesystem::path> candidates() {
  std::error_code error;
  const std::filesystem::path here = code_folder(error);
  return {here / kFile, here / "../src" / kFile, installed_folder() / kFile};
}

// dlopen's message about `file`, and what to do about it where that is known.
std::string why_not_loaded(const std::string& file, std::string_view reason) {
  const std::string prefix = file + ": ";
  if (reason.starts_with(prefix)) reason.remove_prefix(prefix.size());
  std::string text = fmt::format("{} cannot be loaded: {}.", file, reason);
  if (reason.find("libcublas") != std::string_view::npos) {
    text += " Install cuBLAS 13, which is NVIDIA's package libcublas-13-0.";
  }
  return text;
}

}  // namespace

LoadedLibrary load_cuda_library() {
  constexpr const char* kVariable = "QUIRE_CUDA_LIBRARY";
  const char* given = std::getenv(kVariable);
  if (given != nullptr && *given == '\0') {
    return {nullptr, fmt::format("{} is empty, which turns the CUDA backend off.", kVariable)};
  }
  std::error_code ignored;
  std::string file;
  for (const auto& candidate : given ? std::vector<std::filesystem::path>{given} : candidates()) {
    if (std::filesystem::exists(candidate, ignored)) {
      // dlopen looks for a name without a slash in the system's folders.
      file = std::filesystem::absolute(candidate).lexically_normal().string();
      break;
    }
  }
  if (file.empty() && given != nullptr) {
    return {nullptr, fmt::format("{} is {}, and there is no such file.", kVariable, given), true};
  }
  if (file.empty()) {
    return {nullptr, fmt::format("{} was found neither beside {} nor in {}; install the package "
                                 "quire-cuda, or name the library in {}.",
                                 kFile, is_shared_library() ? "libquire.so" : "the program",
                                 installed_folder().string(), kVariable)};
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return {nullptr, why_not_loaded(file, dlerror()), true};
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kEntry));
  if (entry == nullptr) {
    return {nullptr,
            fmt::format("{} is no library of quire's: it has no function {}.", file, kEntry), true};
  }
  std::shared_ptr<DeviceLibrary> library(entry(device_library_version().c_str()));
  if (!library) {
    return {nullptr,
            fmt::format("{} was not made for this quire, {}; install quire and quire-cuda "
                        "of one version, or build both from the same sources.",
                        file, device_library_version()),
            true};
  }
  return {std::move(library), file, false};
}

}  // namespace quire
