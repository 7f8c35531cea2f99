#pragma once
// Where quire is installed, found from the file that this code runs in: the program, or libquire.so
// in a program that is linked to it. So an installation can be moved as a whole.
// Thread safety: free functions. Errors: where the system does not say, they set `error` and return
// an empty path.
// an empty path then.
#include <filesystem>
#include <system_error>

namespace quire {

// Whether this code is in a shared library, not in the program itself.
bool is_shared_library();

// The folder of the program or the shared library that this code is in; absolute.
std::filesystem::path code_folder(std::error_code& error);

// The prefix of the installation, if that folder is one: "/usr" for /usr/bin and for
// /usr/lib/x86_64-linux-gnu. Absolute.
std::filesystem::path installation_prefix(std::error_code& error);

}  // namespace quire
