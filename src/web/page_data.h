#pragma once
// The table that cmake/embed_page.py writes, and the bytes that it points into.
//
// Thread safety: constants.
#include <cstddef>

// Every file's body, followed by the same compressed; made of page.bin when quire is built.
extern "C" const char quire_web_page[];

namespace quire::web::web_internal {

struct PageFile {
  const char* path;
  const char* content_type;
  const char* etag;
  std::size_t offset;  // of the body in quire_web_page
  std::size_t body_size;
  std::size_t gzip_size;  // of what follows the body
};

// In the order of their paths.
extern const PageFile kPageFiles[];
extern const std::size_t kNumPageFiles;

}  // namespace quire::web::web_internal
