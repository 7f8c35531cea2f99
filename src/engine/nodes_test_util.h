#pragma once
// The other nodes of an engine as threads of a test, which talk over this machine's loopback.
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "quire/error.h"
#include "quire/node.h"

namespace quire::engine_test {

// They start when the engine's node 0 waits for them.
class OtherNodes {
 public:
  explicit OtherNodes(int num_nodes) : num_nodes_(num_nodes) {}
  ~OtherNodes() { join(); }

  // `config` as node 0 takes it. The others have `device`, if it is given.
  EngineConfig with_nodes(EngineConfig config, const std::string& device = {}) {
    join();
    config.cluster.num_nodes = num_nodes_;
    config.cluster.master_port = 0;
    config.cluster.secret = "a secret of tests";
    EngineConfig of_others = config;
    if (!device.empty()) of_others.device = device;
    config.cluster.on_message = [this, of_others](const std::string& line) {
      std::smatch match;
      if (std::regex_search(line, match, std::regex("waits at 127.0.0.1:([0-9]+)"))) {
        start(of_others, std::stoi(match[1]));
      }
    };
    return config;
  }

  // What made the nodes end; empty where they ended in order.
  std::vector<std::string> join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return std::exchange(errors_, {});
  }

 private:
  void start(EngineConfig config, int port) {
    config.cluster.master_port = port;
    for (int node = 1; node < num_nodes_; ++node) {
      config.cluster.node_rank = node;
      threads_.emplace_back([this, config] {
        std::string error;
        try {
          Node(config).run();
        } catch (const Error& failure) {
          error = failure.what();
        }
        const std::lock_guard lock(mutex_);
        errors_.push_back(error);
      });
    }
  }

  int num_nodes_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::vector<std::string> errors_;
};

struct Division {
  int ranks = 1;
  int stages = 1;
  int nodes = 1;
};

}  // namespace quire::engine_test
