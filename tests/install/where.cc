// Where an installed libquire.so finds what it needs; tests/e2e/install_test.py reads the lines.
#include <iostream>

#include "quire/benchmark.h"
#include "quire/quire.h"
#include "quire/tune.h"

int main() {
  std::cout << "version " << quire::version() << '\n';
  std::cout << "model " << quire::bundled_model().string() << '\n';
  quire::EngineConfig config;
  config.model = quire::bundled_model();
  config.device = "cuda";
  try {
    quire::plan(config);
  } catch (const quire::Error& error) {
    std::cout << "error " << error.what() << '\n';
  }
}
