// Strings that are written as JSON: whatever the bytes, the text is what nlohmann's dump() gives,
// and reads back as valid JSON.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string written;
  quire::JsonWriter(written).value(text);
  const std::string expected = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  quire::check(written == expected, "a string is not written as the library does it");
  quire::check(Json::accept(written), "a string is not written as valid JSON");
  return 0;
}
