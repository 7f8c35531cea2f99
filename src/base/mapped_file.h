#pragma once
// A file mapped read-only into memory for as long as the object lives.
//
// Thread safety: const use is free. The file must not shrink while it is mapped: the system ends a
// process that reads past the end of a mapped file.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace quire {

class MappedFile {
 public:
  // Throws Error where there is no readable regular file (or a link to one).
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Tells the system that `part` will be read soon, or that it has been read and may leave memory.
  // Only whole pages inside the part are released. `part` lies inside bytes().
  void will_need(std::span<const std::byte> part) const;
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  void check_inside(std::span<const std::byte> part) const;
  void unmap();

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as text. Throws Error where there is no readable regular file, or it has more than
// `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace quire
