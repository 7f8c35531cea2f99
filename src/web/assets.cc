#include "web/assets.h"

#include <algorithm>
#include <vector>

#include "web/page_data.h"

namespace quire::web {

std::span<const Asset> assets() {
  static const std::vector<Asset> all = [] {
    std::vector<Asset> result;
    result.reserve(web_internal::kNumPageFiles);
    for (std::size_t i = 0; i < web_internal::kNumPageFiles; ++i) {
      const web_internal::PageFile& file = web_internal::kPageFiles[i];
      const char* body = quire_web_page + file.offset;
      result.push_back({.path = file.path,
                        .content_type = file.content_type,
                        .body = {body, file.body_size},
                        .gzip_body = {body + file.body_size, file.gzip_size},
                        .etag = file.etag});
    }
    return result;
  }();
  return all;
}

const Asset* find_asset(std::string_view path) {
  const std::span<const Asset> all = assets();
  const auto found = std::ranges::lower_bound(all, path, {}, &Asset::path);
  return found != all.end() && found->path == path ? &*found : nullptr;
}

}  // namespace quire::web
