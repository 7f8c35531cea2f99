#pragma once
// The hub that models are downloaded from, and the account that asks.
#include <string>

namespace quire {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // http or https; no slash at the end
  std::string token;                                // empty: none; sent only to the endpoint
  std::string ca_file;                              // certificates to trust; empty: the system's
  int stall_timeout_s = 30;  // a connection that is silent for longer counts as cut
  std::string user_agent = "quire";
};

// As Hugging Face's tools choose them: $HF_ENDPOINT; $HF_TOKEN, else $HUGGING_FACE_HUB_TOKEN, else
// the file $HF_TOKEN_PATH or $HF_HOME/token; $HF_HUB_DOWNLOAD_TIMEOUT; and for certificates
// $SSL_CERT_FILE, $CURL_CA_BUNDLE or $REQUESTS_CA_BUNDLE. Throws Error for a value that is
// unusable, and where HF_HUB_OFFLINE says that nothing may be downloaded.
HubSettings hub_settings_from_environment();

}  // namespace quire
