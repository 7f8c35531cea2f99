#pragma once
// The web page's files as responses.
//
// Thread safety: pure functions.
#include "http/exchange.h"
#include "web/assets.h"

namespace quire::server {

// `asset`, compressed if the client accepts that; 304 if the client has it already.
http::Response asset_response(const http::Request& request, const web::Asset& asset);

}  // namespace quire::server
