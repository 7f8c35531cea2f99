#include "server/web_page.h"

#include <string>
#include <string_view>

namespace quire::server {

http::Response asset_response(const http::Request& request, const web::Asset& asset) {
  http::Response response;
  response.content_type = std::string(asset.content_type);
  response.headers = {{"ETag", std::string(asset.etag)},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept-Encoding"},
                      {"Content-Security-Policy", std::string(web::kContentSecurityPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (request.header("If-None-Match") == asset.etag) {
    response.status = 304;
  } else if (request.header("Accept-Encoding").value_or("").find("gzip") !=
             std::string_view::npos) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = asset.gzip_body;
  } else {
    response.body = asset.body;
  }
  return response;
}

}  // namespace quire::server
