#include "engine/text_loading.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace quire {

TextLoading::TextLoading(std::function<ModelTexts()> load) {
  try {
    result_ = std::async(std::launch::async, load).share();
  } catch (const std::system_error&) {  // no thread can be started
    result_ = std::async(std::launch::deferred, std::move(load)).share();
  }
}

void TextLoading::check() const {
  if (result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) result_.get();
}

}  // namespace quire
