#include "server/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "quire/error.h"
#include "quire/version.h"
#include "server/observe/metrics_buckets.h"
#include "server/observe/metrics_gaps.h"
#include "server/observe/metrics_process.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

MetricsConfig config() {
  MetricsConfig config;
  config.model_name = "lexicon";
  config.max_model_len = 100;
  config.paths = {"/v1/completions", "/v1/requests/{request_id}", "/"};
  config.block_size = 16;
  config.num_kv_blocks = 640;
  return config;
}

RequestRecord generation_record() {
  RequestRecord record;
  record.method = "POST";
  record.path = "/v1/completions";
  record.status = 200;
  record.finish_reason = "stop";
  record.prompt_tokens = 12;
  record.cached_tokens = 8;
  record.output_tokens = 5;
  record.max_tokens = 64;
  record.queue_s = 0.4;
  record.prefill_s = 0.9;
  record.decode_s = 2;
  record.ttft_s = 1.3;
  record.total_s = 3.4;
  return record;
}

constexpr const char* kLabels = R"(engine="0",model_name="lexicon")";

// The line of a sample with the labels that every metric of the engine has.
std::string sample(const std::string& name, const std::string& value) {
  return "\n" + name + "{" + kLabels + "} " + value + "\n";
}

TEST(Metrics, PrefixIsInFrontOfTheNames) {
  ServerMetrics metrics(config());
  EXPECT_THAT(metrics.render(), HasSubstr("\n# TYPE quire:num_requests_running gauge\n"));

  MetricsConfig vllm = config();
  vllm.prefix = "vllm:";
  const std::string text = ServerMetrics(vllm).render();
  EXPECT_THAT(text, HasSubstr("\n# TYPE vllm:time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(text, Not(HasSubstr("quire:")));
  // Not every name has it.
  EXPECT_THAT(text, HasSubstr("\n# TYPE process_resident_memory_bytes gauge\n"));
}

TEST(Metrics, RefusesPrefixesThatNoNameMayBeginWith) {
  for (const char* prefix : {"", "quire:", "vllm:", "a_b1", "_x", ":"}) {
    EXPECT_NO_THROW(check_metrics_prefix(prefix)) << prefix;
  }
  for (const char* prefix : {"1a", "__a", "a-b", "a b", "a\n", "ä", "{"}) {
    EXPECT_THROW(check_metrics_prefix(prefix), Error) << prefix;
    MetricsConfig wrong = config();
    wrong.prefix = prefix;
    EXPECT_THROW(ServerMetrics{wrong}, Error) << prefix;
  }
  EXPECT_THROW(check_metrics_prefix(std::string(65, 'a')), Error);
}

TEST(Metrics, GenerationIsObserved) {
  ServerMetrics metrics(config());
  metrics.record(generation_record());
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(R"(quire:request_success_total{engine="0",finished_reason="stop",)"
                              R"(model_name="lexicon"} 1)"));
  EXPECT_THAT(text, HasSubstr(sample("quire:time_to_first_token_seconds_sum", "1.3")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_queue_time_seconds_sum", "0.4")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_prefill_time_seconds_sum", "0.9")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_decode_time_seconds_sum", "2")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_inference_time_seconds_sum", "2.9")));
  EXPECT_THAT(text, HasSubstr(sample("quire:e2e_request_latency_seconds_sum", "3.4")));
  // Four gaps in 2 s.
  EXPECT_THAT(text, HasSubstr(sample("quire:request_time_per_output_token_seconds_sum", "0.5")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_prompt_tokens_sum", "12")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_prefill_kv_computed_tokens_sum", "4")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_generation_tokens_sum", "5")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_params_n_sum", "1")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_params_max_tokens_sum", "64")));
}

TEST(Metrics, BucketsAreCumulative) {
  ServerMetrics metrics(config());
  metrics.record(generation_record());
  const std::string text = metrics.render();
  const auto bucket = [](const std::string& bound, int count) {
    return "quire:request_prompt_tokens_bucket{" + std::string(kLabels) + ",le=\"" + bound +
           "\"} " + std::to_string(count) + "\n";
  };
  EXPECT_THAT(text, HasSubstr(bucket("10", 0)));
  EXPECT_THAT(text, HasSubstr(bucket("20", 1)));
  EXPECT_THAT(text, HasSubstr(bucket("100", 1)));
  EXPECT_THAT(text, HasSubstr(bucket("+Inf", 1)));
  EXPECT_THAT(text, Not(HasSubstr("le=\"200\"")));  // beyond max_model_len
}

TEST(Metrics, WhatWasNotGeneratedIsNoGeneration) {
  ServerMetrics metrics(config());
  RequestRecord refused = generation_record();
  refused.status = 429;
  refused.finish_reason = "";
  refused.reject_reason = "queue_full";
  metrics.record(refused);
  // Aborted before its first token: it ended, but has no times.
  RequestRecord aborted = generation_record();
  aborted.finish_reason = "abort";
  aborted.output_tokens = 0;
  aborted.client_disconnected = true;
  metrics.record(aborted);
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:e2e_request_latency_seconds_count", "1")));
  EXPECT_THAT(text, HasSubstr(sample("quire:time_to_first_token_seconds_count", "0")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_queue_time_seconds_count", "0")));
  EXPECT_THAT(text, HasSubstr(sample("quire:request_time_per_output_token_seconds_count", "0")));
  EXPECT_THAT(text, HasSubstr(sample("quire:client_disconnects_total", "1")));
  EXPECT_THAT(text, HasSubstr(R"(quire:rejected_requests_total{engine="0",model_name="lexicon",)"
                              R"(reason="queue_full"} 1)"));
}

TEST(Metrics, ClientsCannotMakeLabels) {
  ServerMetrics metrics(config());
  const size_t before = metrics.render().size();
  for (int i = 0; i < 500; ++i) {
    RequestRecord record = generation_record();
    record.method = "M" + std::to_string(i);
    record.path = "/" + std::to_string(i);
    record.finish_reason = "f" + std::to_string(i);
    record.reject_reason = "r" + std::to_string(i);
    record.status = 1000 + i;
    metrics.record(record);
  }
  const std::string text = metrics.render();
  EXPECT_THAT(text,
              HasSubstr("\nquire:http_responses_total{path=\"other\",status=\"other\"} 500\n"));
  EXPECT_THAT(text, HasSubstr(R"(finished_reason="other",model_name="lexicon"} 500)"));
  EXPECT_LT(text.size(), before + 2000);
}

TEST(Metrics, RoutesAreToldApart) {
  ServerMetrics metrics(config());
  const auto count = [&](const std::string& path) {
    RequestRecord record;
    record.method = "GET";
    record.status = 404;
    record.path = path;
    metrics.record(record);
  };
  for (const char* path : {"/", "/v1/requests/a", "/v1/requests/a/b"}) count(path);
  for (const char* path : {"", "/v1", "/v1/requests", "/v1/requests/", "/v1/completions/a", "x"}) {
    count(path);
  }
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("\nquire:http_responses_total{path=\"/\",status=\"404\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nquire:http_responses_total{path=\"/v1/requests/{request_id}\","
                              "status=\"404\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\nquire:http_responses_total{path=\"other\",status=\"404\"} 6\n"));
  EXPECT_THAT(text,
              HasSubstr("\nhttp_requests_total{handler=\"/\",method=\"GET\",status=\"4xx\"} 1\n"));
}

TEST(Metrics, CountsDraftsWhereThereAreAny) {
  EngineStats engine;
  engine.speculative = {.num_drafts = 5,
                        .num_draft_tokens = 9,
                        .num_accepted_tokens = 6,
                        .num_accepted_tokens_per_pos = {4, 2}};
  MetricsConfig speculative = config();
  speculative.num_speculative_tokens = 2;
  ServerMetrics metrics(speculative);
  metrics.update(engine, {});
  metrics.update(engine, {});
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:spec_decode_num_drafts_total", "5")));
  EXPECT_THAT(text, HasSubstr(sample("quire:spec_decode_num_draft_tokens_total", "9")));
  EXPECT_THAT(text, HasSubstr(sample("quire:spec_decode_num_accepted_tokens_total", "6")));
  for (const auto& [position, count] : {std::pair("0", "4"), std::pair("1", "2")}) {
    EXPECT_THAT(text, HasSubstr("quire:spec_decode_num_accepted_tokens_per_pos_total{" +
                                std::string(kLabels) + ",position=\"" + position + "\"} " + count));
  }
  ServerMetrics without(config());
  without.update(engine, {});
  EXPECT_THAT(without.render(), Not(HasSubstr("spec_decode")));
}

TEST(Metrics, AdaptersAreLabelsAsInVllm) {
  EngineStats engine;
  engine.lora = {.num_loads = 5,
                 .num_evictions = 2,
                 .num_waits = 3,
                 .running = {"a", "b"},
                 .waiting = {"c\"d"}};
  MetricsConfig with = config();
  with.max_loras = 4;
  ServerMetrics metrics(with);
  metrics.update({}, {});
  EXPECT_THAT(metrics.render(),
              HasSubstr("quire:lora_requests_info{max_lora=\"4\","
                        "running_lora_adapters=\"\",waiting_lora_adapters=\"\"} "));
  metrics.update(engine, {});
  metrics.update(engine, {});
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:lora_loads_total", "5")));
  EXPECT_THAT(text, HasSubstr(sample("quire:lora_evictions_total", "2")));
  EXPECT_THAT(text, HasSubstr(sample("quire:lora_waits_total", "3")));
  EXPECT_THAT(text, HasSubstr("quire:lora_requests_info{max_lora=\"4\","
                              "running_lora_adapters=\"a,b\","
                              "waiting_lora_adapters=\"c\\\"d\"} "));
  EXPECT_THAT(text, Not(HasSubstr("running_lora_adapters=\"\"")));
  ServerMetrics without(config());
  without.update(engine, {});
  EXPECT_THAT(without.render(), Not(HasSubstr("lora")));
}

TEST(Metrics, StagesOfAPipelineHaveTheirShareOfIdleTime) {
  EngineStats engine;
  engine.prefill_s = 4;
  engine.decode_s = 4;
  engine.stages = {{.num_steps = 4, .busy_s = 6}, {.num_steps = 4, .busy_s = 4}};
  MetricsConfig with = config();
  with.num_stages = 2;
  ServerMetrics metrics(with);
  metrics.update(engine, {});
  const std::string text = metrics.render();
  const auto of_stage = [](const std::string& name, const std::string& stage,
                           const std::string& value) {
    return "\nquire:pipeline_stage_" + name + "{" + kLabels + ",stage=\"" + stage + "\"} " + value +
           "\n";
  };
  EXPECT_THAT(text, HasSubstr(of_stage("idle_ratio", "0", "0.25")));
  EXPECT_THAT(text, HasSubstr(of_stage("idle_ratio", "1", "0.5")));
  EXPECT_THAT(text, HasSubstr(of_stage("step_seconds", "0", "1.5")));
  EXPECT_THAT(text, HasSubstr(of_stage("busy_seconds_total", "1", "4")));
  EXPECT_THAT(ServerMetrics(config()).render(), Not(HasSubstr("pipeline")));
}

TEST(Metrics, TakesOverTheEnginesCounts) {
  ServerMetrics metrics(config());
  EngineStats engine;
  engine.num_running = 3;
  engine.num_waiting = 2;
  engine.kv_cache_usage = 0.25;
  engine.prefix_cache_queries = 100;
  engine.prefix_cache_hits = 40;
  engine.prompt_tokens = 60;
  engine.generation_tokens = 20;
  engine.num_steps = 4;
  engine.num_preemptions = 1;
  engine.node_bytes_sent = 5000;  // counted only where there are nodes
  ServerStats server;
  server.admission_queue_length = 5;
  server.open_connections = 9;
  server.dropped_slow_readers = 2;
  metrics.update(engine, server);
  metrics.update(engine, server);  // the same counts again add nothing
  std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:num_requests_running", "3")));
  EXPECT_THAT(text, HasSubstr(sample("quire:num_requests_waiting", "7")));
  EXPECT_THAT(text, HasSubstr(sample("quire:admission_queue_length", "5")));
  EXPECT_THAT(text, HasSubstr(sample("quire:kv_cache_usage_perc", "0.25")));
  EXPECT_THAT(text, HasSubstr(sample("quire:prefix_cache_hits_total", "40")));
  EXPECT_THAT(text, HasSubstr(sample("quire:prompt_tokens_total", "100")));
  EXPECT_THAT(text, HasSubstr(sample("quire:generation_tokens_total", "20")));
  EXPECT_THAT(text, HasSubstr(sample("quire:num_preemptions_total", "1")));
  EXPECT_THAT(text, Not(HasSubstr("node_bytes_sent")));
  EXPECT_THAT(text, HasSubstr(sample("quire:http_open_connections", "9")));
  EXPECT_THAT(text, HasSubstr(sample("quire:http_dropped_slow_readers_total", "2")));
  // 80 tokens in 4 steps.
  EXPECT_THAT(text, HasSubstr(sample("quire:iteration_tokens_total_count", "4")));
  EXPECT_THAT(text, HasSubstr(sample("quire:iteration_tokens_total_sum", "80")));

  engine.num_steps = 5;
  engine.generation_tokens = 21;
  engine.num_running = 0;
  metrics.update(engine, server);
  text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:generation_tokens_total", "21")));
  EXPECT_THAT(text, HasSubstr(sample("quire:num_requests_running", "0")));
  EXPECT_THAT(text, HasSubstr("quire:iteration_tokens_total_bucket{" + std::string(kLabels) +
                              ",le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(sample("quire:iteration_tokens_total_sum", "81")));
}

TEST(Metrics, GapsHaveBothNames) {
  ServerMetrics metrics(config());
  metrics.observe_inter_token(0.02);
  metrics.observe_inter_token(0.09, 3);  // three tokens 0.03 s apart
  metrics.observe_inter_token(1, 0);
  metrics.observe_inter_token(1, -1);
  const std::string text = metrics.render();
  for (const std::string name :
       {"quire:inter_token_latency_seconds", "quire:time_per_output_token_seconds"}) {
    EXPECT_THAT(text, HasSubstr(sample(name + "_count", "4")));
    EXPECT_THAT(text, HasSubstr(name + "_bucket{" + kLabels + ",le=\"0.025\"} 1\n"));
    EXPECT_THAT(text, HasSubstr(name + "_bucket{" + kLabels + ",le=\"0.05\"} 4\n"));
    EXPECT_THAT(text, HasSubstr(name + "_bucket{" + kLabels + ",le=\"+Inf\"} 4\n"));
  }
}

TEST(Metrics, SaysWhatRuns) {
  const std::string text = ServerMetrics(config()).render();
  EXPECT_THAT(text,
              HasSubstr("\nquire:build_info{version=\"" + std::string(version()) + "\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("\nquire:cache_config_info{block_size=\"16\",cache_dtype=\"auto\","
                        "enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"640\"} 1\n"));
}

TEST(Metrics, TheCacheHasATypeOfItsOwn) {
  EngineConfig engine;
  engine.dtype = "bfloat16";
  EXPECT_EQ(cache_dtype_of(engine), "bfloat16");
  engine.kv_cache_dtype = "fp8";
  EXPECT_EQ(cache_dtype_of(engine), "fp8");
}

TEST(Metrics, ModelNamesAreEscaped) {
  MetricsConfig odd = config();
  odd.model_name = "a\"b\\c\nd";
  EXPECT_THAT(ServerMetrics(odd).render(), HasSubstr(R"(model_name="a\"b\\c\nd"})"));
}

TEST(Metrics, ManyThreads) {
  ServerMetrics metrics(config());
  constexpr int kThreads = 4;
  constexpr int kTimes = 500;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) {
        metrics.observe_inter_token(0.001 * i);
        if (i % 10 == 0) metrics.record(generation_record());
        EngineStats engine;
        engine.num_steps = i;
        metrics.update(engine, {});
      }
      --running;
    });
  }
  while (running > 0) metrics.render();
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(sample("quire:inter_token_latency_seconds_count", "2000")));
  EXPECT_THAT(text, HasSubstr(sample("quire:e2e_request_latency_seconds_count", "200")));
}

TEST(MetricsBuckets, OneTwoFive) {
  EXPECT_THAT(one_two_five_buckets(100), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(one_two_five_buckets(1), ElementsAre(1));
  EXPECT_THAT(one_two_five_buckets(99), ElementsAre(1, 2, 5, 10, 20, 50));
  EXPECT_EQ(one_two_five_buckets(std::numeric_limits<int64_t>::max()).back(), 5e18);
}

TEST(MetricsBuckets, Ascend) {
  for (const auto& buckets : {first_token_buckets(), output_token_buckets(),
                              request_latency_buckets(), iteration_token_buckets()}) {
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end()));
  }
}

TEST(GapHistogram, BoundsAreInclusive) {
  GapHistogram histogram({1, 2});
  histogram.observe(1, 1);
  histogram.observe(1.5, 2);
  histogram.observe(3, 4);
  histogram.observe(-1, 1);  // a clock stepped back
  histogram.observe(std::numeric_limits<double>::quiet_NaN(), 1);
  const auto snapshot = histogram.snapshot();
  EXPECT_THAT(snapshot.cumulative_counts, ElementsAre(3, 5, 9));
  EXPECT_EQ(snapshot.sum, 16);
}

TEST(ProcessStats, ReadsProc) {
  const std::string stat =
      "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 8192 7 1844 1";
  const ProcessStats stats = parse_process_stats(stat, "cpu 1 2\nbtime 1700000000\n", 100, 4096);
  EXPECT_EQ(stats.cpu_s, 2.0);
  EXPECT_EQ(stats.start_time_s, 1700000010.0);
  EXPECT_EQ(stats.virtual_bytes, 8192);
  EXPECT_EQ(stats.resident_bytes, 7 * 4096);
}

TEST(ProcessStats, SaysNothingOfWhatIsNotThere) {
  for (const char* stat : {"", "42", "42 (a)", "42 (a) S x y"}) {
    const ProcessStats stats = parse_process_stats(stat, "", 100, 4096);
    EXPECT_FALSE(stats.resident_bytes || stats.cpu_s || stats.start_time_s) << stat;
  }
}

TEST(ProcessStats, OfThisProcess) {
  const ProcessStats stats = read_process_stats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GT(stats.start_time_s, 1.6e9);
  EXPECT_GE(stats.open_fds, 3);
}

}  // namespace
}  // namespace quire::server
