#pragma once
// The descriptors 0, 1 and 2.

namespace quire::cli {

// Opens /dev/null for those that are closed, so that no file or socket of ours gets their number
// and receives text meant for a person. Writing to a standard output that was closed still fails.
// Call it before anything else opens a file.
void open_standard_streams();

}  // namespace quire::cli
