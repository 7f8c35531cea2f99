#include "server/setting_file.h"

#include <fmt/format.h>

#include <fstream>
#include <ios>
#include <iterator>

#include "quire/error.h"

namespace quire::server {

// Streams' own functions would take an allocation that fails for the end of the file.
std::string read_setting_file(const std::string& path, std::string_view what) {
  try {
    std::ifstream file(path);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  } catch (const std::ios_base::failure&) {
    // A folder, or a device that fails.
  }
  throw Error(fmt::format("The {} {} cannot be read.", what, path));
}

}  // namespace quire::server
