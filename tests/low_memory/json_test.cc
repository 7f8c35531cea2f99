// Every allocation fails once, in turn, and with it all that follow it: what a client's body is
// read into ends with std::bad_alloc, frees what it held without allocating, and works the next
// time.
#include <gtest/gtest.h>

#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "low_memory/failing_allocator.h"

namespace quire {
namespace {

// Runs `work` with no memory from its first allocation on, from its second on, and so on, until it
// has enough. Returns how many it needs.
template <typename Work>
long run_with_ever_more_memory(Work work) {
  for (long allowed = 0;; ++allowed) {
    low_memory::fail_after(allowed);
    try {
      work();
      low_memory::allow_all();
      return allowed;
    } catch (const std::bad_alloc&) {
      low_memory::allow_all();
    }
  }
}

const std::string kNested =
    R"({"a": [1, [2, [3, "a string that is too long to be held in place"]], {}], "b": {"c": {"d": [[], [[]]]}}})";

TEST(LowMemory, JsonIsReadAndFreed) {
  EXPECT_GT(run_with_ever_more_memory([] {
              nlohmann::ordered_json value = parse_json_text(kNested, {});
              const JsonClearer clearer(value);
              const std::string text(100, 'x');  // fails while the value lives
            }),
            20);
}

}  // namespace
}  // namespace quire
