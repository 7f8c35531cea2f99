#pragma once
// Options that say what an output has to be: --json-schema, --json-object, --regex, --grammar and
// --choice.
#include "cli/options/sampling_fields.h"

namespace quire::cli {

// What is given becomes the field structured_outputs of `fields`, which must outlive the app. Two
// different ones throw UsageError.
void add_constraint_options(CLI::App& app, SamplingFields& fields);

}  // namespace quire::cli
