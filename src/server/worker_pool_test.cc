#include "server/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace quire::server {
namespace {

using testing::ElementsAre;

class WorkerPoolTest : public testing::Test {
 protected:
  // Keeps the one thread busy until release_ is set.
  void hold(WorkerPool& pool, const std::string& client) {
    const auto begun = std::make_shared<std::promise<void>>();
    const auto hold = [begun, released = release_.get_future().share()] {
      begun->set_value();
      released.wait();
    };
    pool.run(hold, client);
    begun->get_future().wait();
  }
  void note(WorkerPool& pool, const std::string& client, const std::string& name) {
    pool.run([this, name] { order_.push_back(name); }, client);
  }
  // Returns when the tasks of a client are done.
  static void finish(WorkerPool& pool, const std::string& client) {
    const auto done = std::make_shared<std::promise<void>>();
    pool.run([done] { done->set_value(); }, client);
    done->get_future().wait();
  }

  std::promise<void> release_;
  std::vector<std::string> order_;  // of the one thread, until it is done
};

TEST_F(WorkerPoolTest, ServesClientsInTurn) {
  WorkerPool pool(1);
  hold(pool, "a");
  for (const char* name : {"a1", "a2", "a3"}) note(pool, "a", name);
  for (const char* name : {"b1", "b2"}) note(pool, "b", name);
  note(pool, "c", "c1");
  release_.set_value();
  finish(pool, "a");
  EXPECT_THAT(order_, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
}

TEST_F(WorkerPoolTest, ServesOneClientInTheOrderGiven) {
  WorkerPool pool(1);
  hold(pool, "");
  for (const char* name : {"1", "2", "3"}) note(pool, "", name);
  pool.run([] { throw std::bad_alloc(); });
  release_.set_value();
  finish(pool, "");
  EXPECT_THAT(order_, ElementsAre("1", "2", "3"));
}

TEST_F(WorkerPoolTest, DropsWhatHasNotBegunAndWhatThatAsksFor) {
  {
    WorkerPool pool(0);
    const std::shared_ptr<int> asks(new int(0), [&](const int* number) {
      delete number;
      note(pool, "a", "asked for");
    });
    pool.run([this, asks] { order_.emplace_back("run"); }, "b");
  }
  EXPECT_THAT(order_, ElementsAre());
}

}  // namespace
}  // namespace quire::server
