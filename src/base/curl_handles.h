#pragma once
// libcurl's objects, freed where their owner ends. For folders that link libcurl.
//
// Thread safety: an object belongs to one thread at a time; CurlLibrary may be made on any.
#include <curl/curl.h>

#include <memory>

#include "quire/error.h"

namespace quire {

struct FreeCurl {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(char* text) const { curl_free(text); }
};
using CurlHandle = std::unique_ptr<CURL, FreeCurl>;
using CurlUrl = std::unique_ptr<CURLU, FreeCurl>;
using CurlList = std::unique_ptr<curl_slist, FreeCurl>;

// libcurl counts these, so every client may hold one. Throws Error if it cannot be set up.
class CurlLibrary {
 public:
  CurlLibrary() {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) throw Error("libcurl cannot be set up.");
  }
  ~CurlLibrary() { curl_global_cleanup(); }
  CurlLibrary(const CurlLibrary&) = delete;
  CurlLibrary& operator=(const CurlLibrary&) = delete;
};

}  // namespace quire
