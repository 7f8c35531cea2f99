#pragma once
// Which folders of the machine clients may load adapters from.
//
// Thread safety: free functions of their arguments and the file system.
#include <string>

namespace quire::server {

// The folder that a client means by `path`: `path` itself where `allowed` is empty, else a folder
// at or below `allowed`, which a path that is not absolute begins in. Links are followed, those of
// the files in the folder too, and all have to end below `allowed`. Throws ApiError, naming
// lora_path: 400 for what is elsewhere, whether it exists or not, 404 where there is no such
// folder.
std::string adapter_folder(const std::string& path, const std::string& allowed);

}  // namespace quire::server
