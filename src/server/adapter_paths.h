#pragma once
// Which folders of the machine clients may load adapters from.
//
// Thread safety: free functions of their arguments and the file system.
#include <string>

namespace quire::server {

// The folder that a client means by `path`. Where `allowed` is empty, that is `path`; else a folder
// at or below `allowed`, in which relative paths begin. Links are followed, also those of the files
// in the folder, and all must end below `allowed`. Throws ApiError, naming lora_path: 400 for what
// is elsewhere, whether it exists or not, 404 where there is no such folder.
std::string adapter_folder(const std::string& path, const std::string& allowed);

}  // namespace quire::server
