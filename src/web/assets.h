#pragma once
// The files of the web page, embedded in the binary: index.html at "/", everything else below
// "/page/".
//
// Thread safety: constants; every function from any thread.
#include <span>
#include <string_view>

namespace quire::web {

struct Asset {
  std::string_view path;          // "/", "/page/app.js"
  std::string_view content_type;  // with its charset
  std::string_view body;
  std::string_view gzip_body;  // for Content-Encoding: gzip; needs Vary: Accept-Encoding
  // Of both bodies, and so a weak one with its quotes: W/"0123456789abcdef".
  std::string_view etag;
};

// What the page may load and do, for the Content-Security-Policy header of every asset: only what
// came with it. It holds even if a model's answer finds a way around the page's own sanitising.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// All of them, in the order of their paths.
std::span<const Asset> assets();

// Null where the page has no such file.
const Asset* find_asset(std::string_view path);

}  // namespace quire::web
