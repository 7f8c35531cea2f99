#include "cli/bench/bench_serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include "cli/terminal/text_format.h"

namespace quire::cli {
namespace {

using loadgen::LatencyHistogram;
using loadgen::LoadReport;
using loadgen::Measurements;
using loadgen::Schedule;
using loadgen::TextMismatch;

struct Latency {
  const char* key;
  const char* label;
  const LatencyHistogram& histogram;
};

std::vector<Latency> latencies(const Measurements& measured) {
  return {{"ttft", "time to first token", measured.ttft()},
          {"tpot", "time per output token", measured.tpot()},
          {"itl", "inter-token latency", measured.itl()},
          {"e2el", "end-to-end latency", measured.e2el()}};
}

double per_second(int64_t count, const LoadReport& report) {
  return report.duration_s > 0 ? static_cast<double>(count) / report.duration_s : 0;
}

// JSON has no infinity; vLLM writes "inf".
Json number_or_inf(double value) {
  return std::isinf(value) ? Json("inf") : Json(value);
}

std::string counted_by(const Measurements& measured) {
  if (measured.counted_by_events() == 0) return "server";
  return measured.counted_by_events() == measured.completed() ? "events" : "server and events";
}

void add_latencies(const Measurements& measured, Json& json) {
  constexpr double kMilliseconds = 1e3;
  for (const Latency& latency : latencies(measured)) {
    const auto add = [&](const char* name, double seconds) {
      json[fmt::format("{}_{}_ms", name, latency.key)] = seconds * kMilliseconds;
    };
    add("mean", latency.histogram.mean());
    add("std", latency.histogram.standard_deviation());
    add("median", latency.histogram.percentile(0.5));
    add("p90", latency.histogram.percentile(0.9));
    add("p95", latency.histogram.percentile(0.95));
    add("p99", latency.histogram.percentile(0.99));
    add("max", latency.histogram.max());
  }
}

Json mismatches_to_json(const std::vector<TextMismatch>& mismatches) {
  Json list = Json::array();
  for (const TextMismatch& mismatch : mismatches) {
    list.push_back({{"prompt", mismatch.request},
                    {"byte", mismatch.byte},
                    {"expected", mismatch.expected},
                    {"got", mismatch.got}});
  }
  return list;
}

std::vector<std::pair<std::string, int64_t>> errors_by_count(const Measurements& measured) {
  std::vector<std::pair<std::string, int64_t>> errors(measured.errors().begin(),
                                                      measured.errors().end());
  std::stable_sort(errors.begin(), errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return errors;
}

void print_counts(const ServeBenchSetup& setup, const LoadReport& report, Terminal& terminal) {
  const Measurements& measured = report.measurements;
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kLeft});
  const auto add = [&table](const char* label, int64_t count, std::string note = "") {
    table.add({label, with_commas(count), std::move(note)});
  };
  const auto add_figure = [&table](const char* label, double value, const char* unit) {
    table.add({label, fmt::format("{:.2f}", value), unit});
  };
  add("successful requests", measured.completed());
  add("failed requests", measured.failed());
  if (measured.rejected() > 0) add("rejected requests", measured.rejected(), "HTTP 429");
  if (measured.retries() > 0) add("retries after HTTP 429", measured.retries());
  if (report.num_interrupted > 0) add("interrupted requests", report.num_interrupted);
  add_figure("duration", report.duration_s, "s");
  add("most requests at once", report.peak_concurrency);
  add("input tokens", measured.input_tokens(),
      measured.without_input_tokens() > 0
          ? fmt::format("without those of {} requests, which the server did not count",
                        with_commas(measured.without_input_tokens()))
          : "");
  if (measured.cached_tokens() > 0) {
    add("of them cached", measured.cached_tokens());
  }
  add("output tokens", measured.output_tokens(),
      measured.counted_by_events() > 0
          ? fmt::format("one for each event of {} requests, as the server did not count them",
                        with_commas(measured.counted_by_events()))
          : "");
  add_figure("request throughput", per_second(measured.completed(), report), "requests/s");
  add_figure("output throughput", per_second(measured.output_tokens(), report), "tokens/s");
  add_figure("total throughput",
             per_second(measured.input_tokens() + measured.output_tokens(), report), "tokens/s");
  terminal.out << fmt::format("{} at {}, {} different prompts\n", setup.model, setup.base_url,
                              with_commas(setup.num_prompts))
               << table.str();
}

void print_latencies(const Measurements& measured, Terminal& terminal) {
  if (measured.completed() == 0) return;
  std::vector<Table::Align> columns(7, Table::Align::kRight);
  columns.front() = Table::Align::kLeft;
  Table table(columns);
  table.add({"milliseconds", "mean", "median", "p90", "p95", "p99", "max"});
  for (const Latency& latency : latencies(measured)) {
    const auto cell = [](double seconds) { return fmt::format("{:.2f}", seconds * 1e3); };
    const LatencyHistogram& values = latency.histogram;
    table.add({latency.label, cell(values.mean()), cell(values.percentile(0.5)),
               cell(values.percentile(0.9)), cell(values.percentile(0.95)),
               cell(values.percentile(0.99)), cell(values.max())});
  }
  terminal.out << '\n' << table.str();
}

void print_errors(const Measurements& measured, Terminal& terminal) {
  if (measured.errors().empty()) return;
  Table table({Table::Align::kRight, Table::Align::kLeft});
  for (const auto& [message, count] : errors_by_count(measured)) {
    table.add({with_commas(count), printable_line(message)});
  }
  terminal.out << "\nErrors\n" << table.str();
  for (const TextMismatch& mismatch : measured.shown_mismatches()) {
    terminal.out << printable_line(fmt::format(
                        "  prompt {}, from byte {} on: expected \"{}\", got \"{}\"",
                        mismatch.request + 1, mismatch.byte, mismatch.expected, mismatch.got))
                 << '\n';
  }
}

}  // namespace

Json report_to_json(const ServeBenchSetup& setup, const LoadReport& report) {
  const Measurements& measured = report.measurements;
  const Schedule& schedule = setup.schedule;
  Json json;
  json["base_url"] = setup.base_url;
  json["model_id"] = setup.model;
  json["num_prompts"] = setup.num_prompts;
  json["request_rate"] = number_or_inf(schedule.request_rate);
  json["burstiness"] = schedule.burstiness;
  json["max_concurrency"] =
      schedule.max_concurrency ? Json(*schedule.max_concurrency) : Json(nullptr);
  json["max_concurrent_requests"] = report.peak_concurrency;
  json["duration"] = report.duration_s;
  json["completed"] = measured.completed();
  json["failed"] = measured.failed();
  json["rejected"] = measured.rejected();
  json["retries"] = measured.retries();
  json["interrupted"] = report.num_interrupted;
  json["total_input_tokens"] = measured.input_tokens();
  json["total_cached_tokens"] = measured.cached_tokens();
  json["total_output_tokens"] = measured.output_tokens();
  json["output_tokens_counted_by"] = counted_by(measured);
  json["requests_without_input_tokens"] = measured.without_input_tokens();
  json["request_throughput"] = per_second(measured.completed(), report);
  json["output_throughput"] = per_second(measured.output_tokens(), report);
  json["total_token_throughput"] =
      per_second(measured.input_tokens() + measured.output_tokens(), report);
  add_latencies(measured, json);
  json["errors"] = Json::object();
  for (const auto& [message, count] : errors_by_count(measured)) json["errors"][message] = count;
  json["mismatched"] = measured.mismatches();
  json["mismatches"] = mismatches_to_json(measured.shown_mismatches());
  return json;
}

void print_report(const ServeBenchSetup& setup, const LoadReport& report, Terminal& terminal) {
  print_counts(setup, report, terminal);
  print_latencies(report.measurements, terminal);
  print_errors(report.measurements, terminal);
}

std::string failure_sentence(const LoadReport& report) {
  const Measurements& measured = report.measurements;
  const int64_t without_answer = measured.failed() + measured.rejected();
  if (without_answer == 0) return {};
  const auto [message, count] = errors_by_count(measured).front();
  return fmt::format("{} of {} requests failed, {} of them with: {}", with_commas(without_answer),
                     with_commas(measured.ended()), with_commas(count), message);
}

}  // namespace quire::cli
