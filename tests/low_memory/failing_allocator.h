#pragma once
// The operator new of this program, which fails where a test says so. operator delete never does.
//
// Thread safety: the functions from any thread; one FailOne at a time.

namespace quire::low_memory {

// Lets the allocations of this thread fail once it has made `count` of them, until allow_all().
void fail_after(long count);
void allow_all();

// Lets one allocation fail in its scope: that of `index`, from 0, counted over all threads but
// those that are exempt.
class FailOne {
 public:
  explicit FailOne(long index);
  ~FailOne();
  FailOne(const FailOne&) = delete;
  FailOne& operator=(const FailOne&) = delete;

  // Whether it has come to that.
  bool failed() const;
};

// This thread's allocations are not counted by FailOne.
void exempt_this_thread();

}  // namespace quire::low_memory
