// A server that is told to stop, or to read its files again, does so although an allocation fails:
// each in turn.
#include "server/app.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "http/test_client.h"
#include "low_memory/failing_allocator.h"

namespace quire::server {
namespace {

using low_memory::FailOne;

class LowMemoryApp : public testing::Test {
 protected:
  void SetUp() override {
    low_memory::exempt_this_thread();
    folder_ = testing::TempDir() + "low_memory_app_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/keys") << "first-key\n";
    std::ofstream(folder_ + "/limits") << R"({"default": {"concurrent_requests": 16}})";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ServeOptions options() const {
    ServeOptions options;
    options.engine.model = QUIRE_SOURCE_DIR "/tests/golden/models/qwen3-tied";
    options.engine.device = "cpu";
    options.engine.threads = 1;
    options.engine.kv_cache_memory_bytes = 1 << 20;
    options.engine.skip_tokenizer_init = true;
    options.http.port = 0;
    options.api_key_file = folder_ + "/keys";
    options.key_limits_file = folder_ + "/limits";
    return options;
  }
  // As a signal's thread does.
  static void on_another_thread(const std::function<void()>& call) { std::thread(call).join(); }

  std::string folder_;
};

TEST_F(LowMemoryApp, Stops) {
  long index = 0;
  for (bool failed = true; failed; ++index) {
    App app(options());
    app.start();
    const FailOne fail(index);
    on_another_thread([&] { app.stop(); });
    EXPECT_TRUE(app.wait()) << index;
    failed = fail.failed();
  }
  EXPECT_GT(index, 3);
}

TEST_F(LowMemoryApp, ReadsItsFilesAgain) {
  App app(options());
  app.start();
  const auto status = [&](const std::string& key) {
    http::TestClient client(app.port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n\r\n");
    return client.response().status;
  };
  long index = 0;
  for (bool failed = true; failed; ++index) {
    const std::string key = "key-number-" + std::to_string(index);
    std::ofstream(folder_ + "/keys") << key << "\n";
    {
      const FailOne fail(index);
      on_another_thread([&] { app.reload(); });
      failed = fail.failed();
    }
    ASSERT_TRUE(http::eventually([&] { return status(key) == 200; })) << index;
  }
  EXPECT_GT(index, 10);
  app.stop();
  EXPECT_TRUE(app.wait());
}

}  // namespace
}  // namespace quire::server
