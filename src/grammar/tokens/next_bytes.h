#pragma once
// Which bytes may follow each text of a context-free grammar, wherever it is used.
//
// Thread safety: free functions.
#include <vector>

#include "grammar/tokens/context_free_tables.h"

namespace quire::grammar {

// For each spot at which a text is awaited the bytes that may follow behind this text; maybe more
// than these.
std::vector<DfaMasks::Bytes> find_next_bytes(const ContextFreeTables& tables, Budget& budget);

}  // namespace quire::grammar
