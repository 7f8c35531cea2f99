#include "server/observe/metrics_registry.h"

#include <utility>

namespace quire::server {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

MetricsRegistry::MetricsRegistry(std::string prefix, Labels labels)
    : prefix_(std::move(prefix)), labels_(std::move(labels)) {}

Labels MetricsRegistry::labels_and(const std::string& name, std::string_view value) const {
  Labels labels = labels_;
  labels[name] = value;
  return labels;
}

Family<Gauge>& MetricsRegistry::gauge_family(std::string_view name, std::string_view help) {
  return prometheus::BuildGauge().Name(prefixed(name)).Help(std::string(help)).Register(registry_);
}

Family<Counter>& MetricsRegistry::counter_family(std::string_view name, std::string_view help) {
  return plain_counter_family(prefixed(name), help);
}

Family<Counter>& MetricsRegistry::plain_counter_family(const std::string& name,
                                                       std::string_view help) {
  return prometheus::BuildCounter().Name(name).Help(std::string(help)).Register(registry_);
}

Gauge& MetricsRegistry::gauge(std::string_view name, std::string_view help) {
  return gauge_family(name, help).Add(labels_);
}

Counter& MetricsRegistry::counter(std::string_view name, std::string_view help) {
  return counter_family(name, help).Add(labels_);
}

Histogram& MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                      const std::vector<double>& boundaries) {
  return prometheus::BuildHistogram()
      .Name(prefixed(name))
      .Help(std::string(help))
      .Register(registry_)
      .Add(labels_, boundaries);
}

void raise_to(Counter& counter, double total) {
  const double delta = total - counter.Value();
  if (delta > 0) counter.Increment(delta);
}

}  // namespace quire::server
