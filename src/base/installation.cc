#include "base/installation.h"

#include <dlfcn.h>
#include <link.h>

#include <string>

namespace fs = std::filesystem;

namespace quire {
namespace {

// The shared library's file as it was loaded; empty in the program itself, which has no name there.
std::string library_file() {
  Dl_info info;
  void* map = nullptr;
  const int found = dladdr1(reinterpret_cast<void*>(&library_file), &info, &map, RTLD_DL_LINKMAP);
  const bool is_known = found != 0 && map != nullptr;
  return is_known ? static_cast<const link_map*>(map)->l_name : std::string();
}

}  // namespace

bool is_shared_library() {
  return !library_file().empty();
}

fs::path code_folder(std::error_code& error) {
  const std::string library = library_file();
  const fs::path file =
      library.empty() ? fs::read_symlink("/proc/self/exe", error) : fs::canonical(library, error);
  return error ? fs::path() : file.parent_path();
}

fs::path installation_prefix(std::error_code& error) {
  const fs::path folder = code_folder(error);
  if (error) return {};
  const char* up = is_shared_library() ? QUIRE_PREFIX_FROM_LIBRARIES : QUIRE_PREFIX_FROM_PROGRAMS;
  const fs::path prefix = (folder / up).lexically_normal();
  return prefix.has_filename() ? prefix : prefix.parent_path();  // "/usr", not "/usr/"
}

}  // namespace quire
