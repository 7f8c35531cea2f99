#pragma once
// The one exception type that quire throws.
//
// Thrown when an operation cannot go on because of something outside the program: a file, a
// configuration, a request, the machine. what() is one sentence that a user can act on: what is
// wrong, where, and what was expected. Programmer errors are not exceptions: they abort
// (base/check.h).
#include <stdexcept>

namespace quire {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The engine itself failed: the request is not at fault, and the engine takes no more requests.
class EngineFailure : public Error {
 public:
  using Error::Error;
};

}  // namespace quire
