#pragma once
// Options for constraints on an output: --json-schema, --json-object, --regex, --grammar and
// --choice.
#include "cli/options/sampling_fields.h"

namespace quire::cli {

// The given constraint becomes the field structured_outputs of `fields`, which must outlive the
// app. Two different ones throw UsageError.
void add_constraint_options(CLI::App& app, SamplingFields& fields);

}  // namespace quire::cli
