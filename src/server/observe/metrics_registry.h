#pragma once
// The server's own metrics in one registry: their prefix, their labels, and how they are made.
//
// Thread safety: making metrics from one thread at a time; what is made, from any thread.
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

class MetricsRegistry {
 public:
  // Every metric has `labels`, unless its family's user says others.
  MetricsRegistry(std::string prefix, prometheus::Labels labels);

  std::string prefixed(std::string_view name) const { return prefix_ + std::string(name); }
  const std::string& prefix() const { return prefix_; }
  const prometheus::Labels& labels() const { return labels_; }
  // labels() and one more.
  prometheus::Labels labels_and(const std::string& name, std::string_view value) const;

  prometheus::Family<prometheus::Gauge>& gauge_family(std::string_view name, std::string_view help);
  prometheus::Family<prometheus::Counter>& counter_family(std::string_view name,
                                                          std::string_view help);
  // Without the prefix.
  prometheus::Family<prometheus::Counter>& plain_counter_family(const std::string& name,
                                                                std::string_view help);
  prometheus::Gauge& gauge(std::string_view name, std::string_view help);
  prometheus::Counter& counter(std::string_view name, std::string_view help);
  prometheus::Histogram& histogram(std::string_view name, std::string_view help,
                                   const std::vector<double>& boundaries);

  std::vector<prometheus::MetricFamily> collect() const { return registry_.Collect(); }

 private:
  const std::string prefix_;
  const prometheus::Labels labels_;
  prometheus::Registry registry_;
};

// Counters only go up; counts that others keep are taken over as they are.
void raise_to(prometheus::Counter& counter, double total);

inline constexpr std::string_view kOtherLabel = "other";

// The value itself where it is a known one: labels never grow with what clients send.
template <std::size_t N>
std::string_view known_or_other(const std::array<std::string_view, N>& known,
                                std::string_view value) {
  const auto found = std::find(known.begin(), known.end(), value);
  return found != known.end() ? *found : kOtherLabel;
}

}  // namespace quire::server
