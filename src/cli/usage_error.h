#pragma once
// What is wrong with a command line, as opposed to with what it asks for: exit code 2, not 1.
#include <string>

#include "quire/error.h"

namespace quire::cli {

class UsageError : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells report it

}  // namespace quire::cli
