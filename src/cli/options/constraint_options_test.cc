#include "cli/options/constraint_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

using ::testing::ThrowsMessage;
using Kind = StructuredOutput::Kind;

std::optional<StructuredOutput> constraint_given(std::vector<std::string> arguments) {
  CLI::App app;
  SamplingFields fields;
  add_constraint_options(app, fields);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return fields.apply({}).structured_output;
}

TEST(ConstraintOptions, EachIsAConstraint) {
  EXPECT_EQ(constraint_given({}), std::nullopt);
  EXPECT_EQ(constraint_given({"--json-schema", R"( {"const": 0.10})"}),
            (StructuredOutput{.kind = Kind::kJsonSchema, .text = R"( {"const": 0.10})"}));
  EXPECT_EQ(constraint_given({"--json-object"}), (StructuredOutput{.kind = Kind::kJsonObject}));
  EXPECT_EQ(constraint_given({"--regex", "[a-z],{2}"}),
            (StructuredOutput{.kind = Kind::kRegex, .text = "[a-z],{2}"}));
  EXPECT_EQ(constraint_given({"--grammar", "root ::= \"a\""}),
            (StructuredOutput{.kind = Kind::kGrammar, .text = "root ::= \"a\""}));
  EXPECT_EQ(constraint_given({"--choice", "a,b", "--choice", "c"}),
            (StructuredOutput{.kind = Kind::kChoice, .choices = {"a,b", "c"}}));
}

TEST(ConstraintOptions, SchemasAndGrammarsComeFromFiles) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "file").string();
  std::ofstream(path) << "true";
  EXPECT_EQ(constraint_given({"--json-schema", path})->text, "true");
  EXPECT_EQ(constraint_given({"--grammar", path})->text, "true");
  EXPECT_THAT(
      [] {
        constraint_given({"--json-schema", "/no/such/file"});
      },
      ThrowsMessage<UsageError>(
          "--json-schema: cannot read /no/such/file: No such file or directory"));
  EXPECT_THAT(
      [] {
        constraint_given({"--grammar", "nothing"});
      },
      ThrowsMessage<UsageError>("--grammar: cannot read nothing: No such file or "
                                "directory"));
}

TEST(ConstraintOptions, GoNotTogether) {
  EXPECT_THAT(
      [] {
        constraint_given({"--json-schema", "{}", "--regex", "a"});
      },
      ThrowsMessage<UsageError>(
          "--json-schema and --regex are both given, but an output follows one constraint"));
  EXPECT_THAT(
      [] {
        constraint_given({"--regex", "a", "--regex", "b"});
      },
      ThrowsMessage<UsageError>("--regex is given twice, but an output follows one constraint"));
  EXPECT_THROW(constraint_given({"--choice", "a", "--json-object"}), UsageError);
}

}  // namespace
}  // namespace quire::cli
