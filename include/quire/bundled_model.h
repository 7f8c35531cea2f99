#pragma once
// The small chat model that comes with quire: it defines English words.
//
// Thread safety: a free function.
#include <filesystem>

namespace quire {

// Its folder: share/quire/models/lexicon under the prefix where this program (or the libquire.so
// that it is linked to) is installed, else models/lexicon in the source tree that quire was built
// from. Throws Error naming both places where neither exists.
std::filesystem::path bundled_model();

}  // namespace quire
