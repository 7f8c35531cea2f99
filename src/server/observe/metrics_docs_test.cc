// What docs/operations.md and deploy/ say of the metrics, held against what is exported.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/observe/metrics.h"

namespace quire::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

std::string read_source(const std::string& path) {
  std::ifstream file(std::filesystem::path(QUIRE_SOURCE_DIR) / path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Metric {
  std::string type{};
  std::string help{};
  std::set<std::string> labels{};
};

std::vector<std::smatch> all_matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

// The metrics of a server that has answered and refused a request, by name; for histograms also
// their _bucket, _sum and _count.
class Exported {
 public:
  Exported() {
    MetricsConfig config;
    config.max_model_len = 1;
    config.num_speculative_tokens = 1;
    config.max_loras = 1;
    config.num_stages = 2;
    config.num_nodes = 2;
    ServerMetrics metrics(config);
    metrics.record({});
    const std::string text = metrics.render();
    static const std::regex kHead("# (HELP|TYPE) (\\S+) (.*)");
    static const std::regex kSample("([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\\{(.*)\\})? \\S+");
    static const std::regex kLabel("([a-z_]+)=\"");
    std::istringstream in(text);
    std::string family;
    for (std::string line; std::getline(in, line);) {
      std::smatch match;
      if (std::regex_match(line, match, kHead)) {
        family = match[2];
        (match[1] == "HELP" ? families[family].help : families[family].type) = match[3];
      } else if (std::regex_match(line, match, kSample)) {
        const std::string labels = match[2];
        for (const std::smatch& label : all_matches(labels, kLabel)) {
          samples[match[1]].insert(label[1]);
          if (label[1] != "le") families[family].labels.insert(label[1]);
        }
        samples[match[1]];  // known, though it may have no labels
      } else {
        ADD_FAILURE() << "neither a comment nor a sample: " << line;
      }
    }
  }

  std::map<std::string, Metric> families{};
  std::map<std::string, std::set<std::string>> samples{};  // name to labels
};

std::string markdown_table(const Exported& exported) {
  std::string table = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const auto& [name, metric] : exported.families) {
    std::string labels;
    for (const std::string& label : metric.labels) {
      if (label == "engine" || label == "model_name") continue;  // the page says who has them
      labels += fmt::format("{}`{}`", labels.empty() ? "" : ", ", label);
    }
    table += fmt::format("| `{}` | {} | {} | {} |\n", name, metric.type, labels, metric.help);
  }
  return table;
}

TEST(MetricsDocs, TheTableIsWhatIsExported) {
  const std::string table = markdown_table(Exported());
  EXPECT_NE(read_source("docs/operations.md").find(table), std::string::npos)
      << "docs/operations.md does not hold this table:\n"
      << table;
}

// Names and labels of the metrics in `expression` that Prometheus would find.
void expect_exported(const std::string& expression, const Exported& exported) {
  // A name that is not a function, a keyword or a label: it has a selector or a range behind it.
  static const std::regex kSelector("([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\\{([^}]*)\\}|\\[)");
  static const std::regex kMatcher("([a-z_]+)(?:=~|!~|!=|=)");
  static const std::regex kBy("by \\(([a-z_, ]*)\\)");
  const std::set<std::string> added_by_prometheus = {"job", "instance"};
  std::set<std::string> known = added_by_prometheus;
  const auto selectors = all_matches(expression, kSelector);
  EXPECT_FALSE(selectors.empty()) << expression;
  for (const std::smatch& selector : selectors) {
    const std::string name = selector[1];
    if (name == "up") continue;  // Prometheus's own
    EXPECT_THAT(exported.samples, Contains(Key(name))) << expression;
    const auto sample = exported.samples.find(name);
    if (sample == exported.samples.end()) continue;
    known.insert(sample->second.begin(), sample->second.end());
    const std::string matchers = selector[2];
    for (const std::smatch& matcher : all_matches(matchers, kMatcher)) {
      const std::string label = matcher[1];
      EXPECT_TRUE(sample->second.contains(label) || added_by_prometheus.contains(label))
          << name << " has no label " << label << ": " << expression;
    }
  }
  for (const std::smatch& by : all_matches(expression, kBy)) {
    std::istringstream labels(by[1]);
    for (std::string label; std::getline(labels, label, ',');) {
      label.erase(0, label.find_first_not_of(' '));
      EXPECT_THAT(known, Contains(label)) << expression;
    }
  }
}

TEST(MetricsDocs, TheDashboardAsksForWhatIsExported) {
  const Exported exported;
  const auto dashboard = nlohmann::json::parse(read_source("deploy/grafana-dashboard.json"));
  static const std::regex kPrefix("\\$\\{prefix\\}");
  size_t num_expressions = 0;
  for (const auto& panel : dashboard["panels"]) {
    if (panel["type"] == "row") continue;
    for (const auto& target : panel["targets"]) {
      const std::string expression = target["expr"];
      expect_exported(std::regex_replace(expression, kPrefix, "quire:"), exported);
      ++num_expressions;
    }
  }
  EXPECT_GT(num_expressions, 40);
  for (const auto& variable : dashboard["templating"]["list"]) {
    if (variable["type"] != "query") continue;
    std::smatch match;
    const std::string query =
        std::regex_replace(variable["definition"].get<std::string>(), kPrefix, "quire:");
    ASSERT_TRUE(std::regex_match(query, match, std::regex("label_values\\((\\S+), (\\w+)\\)")));
    EXPECT_THAT(exported.samples, Contains(Key(match[1].str())));
  }
}

TEST(MetricsDocs, TheDashboardCanBeImported) {
  const auto dashboard = nlohmann::json::parse(read_source("deploy/grafana-dashboard.json"));
  std::set<int> ids;
  for (const auto& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["id"];
    const auto& place = panel["gridPos"];
    EXPECT_LE(place["x"].get<int>() + place["w"].get<int>(), 24) << panel["title"];
  }
  std::set<std::string> variables;
  for (const auto& variable : dashboard["templating"]["list"]) {
    variables.insert(variable["name"].get<std::string>());
  }
  EXPECT_EQ(variables, (std::set<std::string>{"datasource", "prefix", "model_name", "instance"}));
}

TEST(MetricsDocs, TheAlertsAskForWhatIsExported) {
  const Exported exported;
  const std::string rules = read_source("deploy/quire.rules.yml");
  static const std::regex kName("quire:[a-z_]+");
  const auto names = all_matches(rules, kName);
  EXPECT_GE(names.size(), 4);
  for (const std::smatch& name : names) {
    EXPECT_THAT(exported.samples, Contains(Key(name.str()))) << rules;
  }
}

// The names that vLLM's own dashboards ask for (examples/observability/ of its sources), as far as
// they are about what quire has.
TEST(MetricsDocs, HasTheNamesOfVllmsDashboards) {
  const Exported exported;
  for (const char* name : {"e2e_request_latency_seconds_bucket",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "inter_token_latency_seconds_bucket",
                           "time_per_output_token_seconds_bucket",
                           "num_requests_running",
                           "num_requests_waiting",
                           "time_to_first_token_seconds_bucket",
                           "kv_cache_usage_perc",
                           "request_prompt_tokens_bucket",
                           "request_generation_tokens_bucket",
                           "request_success_total",
                           "request_queue_time_seconds_sum",
                           "request_prefill_time_seconds_sum",
                           "request_decode_time_seconds_sum",
                           "request_inference_time_seconds_sum",
                           "request_time_per_output_token_seconds_sum",
                           "request_params_n_bucket",
                           "request_params_max_tokens_bucket",
                           "iteration_tokens_total_bucket",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "num_preemptions_total",
                           "spec_decode_num_drafts_total",
                           "spec_decode_num_draft_tokens_total",
                           "spec_decode_num_accepted_tokens_total",
                           "spec_decode_num_accepted_tokens_per_pos_total",
                           "cache_config_info",
                           "request_prefill_kv_computed_tokens_sum"}) {
    EXPECT_THAT(exported.samples, Contains(Key(std::string("quire:") + name)));
  }
  EXPECT_THAT(exported.samples, Contains(Key("http_requests_total")));
}

}  // namespace
}  // namespace quire::server
