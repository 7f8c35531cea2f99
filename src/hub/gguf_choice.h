#pragma once
// Which of the GGUF files of a repository or folder is meant: ORG/NAME:Q4_K_M.
//
// Thread safety: free functions without state.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A model's name, and which of its GGUF files: what stands after a colon.
struct GgufName {
  std::string model;
  std::string variant;  // "Q4_K_M", or the file's name; empty where no colon is in the last part
};
GgufName parse_gguf_name(std::string_view name);

// Chooses the files of one GGUF model from `names`, which are relative to a repository or folder:
// one file, or all parts of a split one. `variant` is the end of the file's name, after "-", "." or
// "_" and in any case, or the whole name; empty only where there is just one model. Throws Error,
// opening with `where` and listing the names, if no model or several match.
std::vector<std::string> choose_gguf(const std::vector<std::string>& names,
                                     std::string_view variant, std::string_view where);

// Whether one of the names is a GGUF model's.
bool holds_gguf(const std::vector<std::string>& names);

}  // namespace quire
