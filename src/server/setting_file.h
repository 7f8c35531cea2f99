#pragma once
// Reads a file of the operator's settings, which may be a pipe.
//
// Thread safety: a free function.
#include <string>
#include <string_view>

namespace quire::server {

// Throws Error, which calls the file `what` ("API key file"), where it cannot be read to its end.
std::string read_setting_file(const std::string& path, std::string_view what);

}  // namespace quire::server
