#pragma once
// A model in one GGUF file, or split into several: NAME-00001-of-00003.gguf and so on. Any of the
// parts names the model. The first part has the metadata, each part its tensors.
//
// Thread safety: const use is free.
#include <filesystem>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "loader/gguf_file.h"

namespace quire {

class GgufModel {
 public:
  // Maps the files. Throws Error as GgufFile::parse() does, where a part is missing or belongs to
  // another model, and where two parts have a tensor of the same name.
  static GgufModel open(const std::filesystem::path& path);

  // The one with the metadata.
  const GgufFile& header() const { return parts_.front().file; }
  struct Part {
    MappedFile mapped;
    GgufFile file;
  };
  const std::vector<Part>& parts() const { return parts_; }
  // Gives the mappings to the caller; views of them stay valid as long as these.
  std::vector<Part> take_parts() && { return std::move(parts_); }

 private:
  GgufModel() = default;
  std::vector<Part> parts_;
};

// Whether the path is treated as a GGUF file: its name ends in .gguf, and it is no folder.
bool is_gguf_path(const std::filesystem::path& path);

// The files of the model that `path` names a part of, in order; just `path` where it is not split.
// They need not exist.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& path);

}  // namespace quire
