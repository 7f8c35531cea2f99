#pragma once
// The descriptors 0, 1 and 2.

namespace quire::cli {

// Opens /dev/null on those that are closed, so that no file or socket of ours gets their number and
// what is meant for a person is written into it. What is written to a standard output that was
// closed still fails. Call it before anything else opens a file.
void open_standard_streams();

}  // namespace quire::cli
