#include "cli/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "quire/error.h"

namespace quire::cli {

OutputFile::OutputFile(const std::filesystem::path& path, std::string_view option)
    : path_(path), partial_(path.string() + ".partial") {
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored) &&
      !std::filesystem::is_regular_file(path_, ignored)) {
    throw Error(fmt::format("{} {}: expected a file, and this is none", option, path_.string()));
  }
  errno = 0;
  if (!std::ofstream(partial_, std::ios::binary | std::ios::trunc)) {
    throw Error(fmt::format("{}: the file {} cannot be written: {}", option, partial_.string(),
                            std::strerror(errno)));
  }
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void OutputFile::write(std::string_view text) {
  errno = 0;
  std::ofstream file(partial_, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    throw Error(
        fmt::format("the file {} cannot be written: {}", partial_.string(), std::strerror(errno)));
  }
  std::filesystem::rename(partial_, path_);
}

}  // namespace quire::cli
