#include "cli/options/engine_options.h"

#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

EngineConfig parse(std::vector<std::string> arguments) {
  CLI::App app;
  EngineConfig config;
  add_engine_options(app, config, /*seed_is_taken=*/false);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return config;
}

TEST(EngineOptions, DefaultToTheEngineConfigs) {
  const EngineConfig config = parse({});
  const EngineConfig defaults;
  EXPECT_EQ(config.model, "");
  EXPECT_EQ(config.max_num_batched_tokens, defaults.max_num_batched_tokens);
  EXPECT_EQ(config.enable_prefix_caching, true);
  EXPECT_EQ(config.max_model_len, std::nullopt);
}

TEST(EngineOptions, ReadEveryOption) {
  const EngineConfig config = parse({"folder",
                                     "--max-num-batched-tokens",
                                     "2k",
                                     "--max-num-seqs",
                                     "3",
                                     "--max-model-len",
                                     "8K",
                                     "--block-size",
                                     "32",
                                     "--num-gpu-blocks-override",
                                     "100",
                                     "--kv-cache-memory-bytes",
                                     "4G",
                                     "--gpu-memory-utilization",
                                     "0.5",
                                     "--no-enable-prefix-caching",
                                     "--tensor-parallel-size",
                                     "2",
                                     "--pipeline-parallel-size",
                                     "3",
                                     "--pipeline-layers",
                                     "9,10,8",
                                     "--enforce-eager",
                                     "--linear-algorithms",
                                     "tuned.json",
                                     "--no-async-scheduling",
                                     "--structured-whitespace",
                                     "compact",
                                     "--dtype",
                                     "float32",
                                     "--device",
                                     "cpu",
                                     "--seed",
                                     "7",
                                     "--load-format",
                                     "dummy",
                                     "--skip-tokenizer-init",
                                     "--threads",
                                     "2"});
  EXPECT_EQ(config.model, "folder");
  EXPECT_EQ(config.max_num_batched_tokens, 2000);
  EXPECT_EQ(config.max_num_seqs, 3);
  EXPECT_EQ(config.max_model_len, 8192);
  EXPECT_EQ(config.block_size, 32);
  EXPECT_EQ(config.num_gpu_blocks_override, 100);
  EXPECT_EQ(config.kv_cache_memory_bytes, int64_t{4} << 30);
  EXPECT_EQ(config.gpu_memory_utilization, 0.5);
  EXPECT_FALSE(config.enable_prefix_caching);
  EXPECT_EQ(config.tensor_parallel_size, 2);
  EXPECT_EQ(config.pipeline_parallel_size, 3);
  EXPECT_EQ(config.pipeline_layers, (std::vector<int64_t>{9, 10, 8}));
  EXPECT_TRUE(config.enforce_eager);
  EXPECT_EQ(config.linear_algorithms, "tuned.json");
  EXPECT_FALSE(config.async_scheduling);
  EXPECT_EQ(config.dtype, "float32");
  EXPECT_EQ(config.structured_whitespace, "compact");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.seed, 7U);
  EXPECT_EQ(config.load_format, LoadFormat::kDummy);
  EXPECT_TRUE(config.skip_tokenizer_init);
  EXPECT_EQ(config.threads, 2);
}

TEST(EngineOptions, RefuseValuesOutOfRange) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--block-size", "17"},
                                             {"--block-size", "512"},
                                             {"--block-size", "0"},
                                             {"--max-num-seqs", "0"},
                                             {"--max-model-len", "-5"},
                                             {"--threads", "-1"},
                                             {"--dtype", "float8"},
                                             {"--device", "tpu"},
                                             {"--load-format", "gguf"},
                                             {"--tensor-parallel-size", "9999999999"}}) {
    EXPECT_THROW(parse(arguments), UsageError) << arguments[0] << ' ' << arguments[1];
  }
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--gpu-memory-utilization", "0"},
                                             {"--gpu-memory-utilization", "1.5"},
                                             {"--structured-whitespace", "0"}}) {
    EXPECT_THROW(parse(arguments), CLI::ParseError) << arguments[0] << ' ' << arguments[1];
  }
}

TEST(EngineOptions, SayTheRangeOfWhatIsOutOfIt) {
  const auto refused = [](const char* option, const char* value) -> std::string {
    try {
      parse({option, value});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refused("--max-num-seqs", "65537"), "--max-num-seqs: expected 1 to 65536, got 65537");
  EXPECT_EQ(refused("--max-num-seqs", "99999999999999999999"),
            "--max-num-seqs: expected 1 to 65536, got 99999999999999999999");
  EXPECT_EQ(refused("--max-num-batched-tokens", "5M"),
            "--max-num-batched-tokens: expected 1 to 4194304, got 5M");
  EXPECT_EQ(refused("--max-model-len", "1"), "--max-model-len: expected 2 to 16777216, got 1");
  EXPECT_EQ(refused("--block-size", "7"), "--block-size: expected 16 to 256, got 7");
  EXPECT_EQ(refused("--threads", "1025"), "--threads: expected 0 to 1024, got 1025");
  EXPECT_EQ(refused("--tensor-parallel-size", "257"),
            "--tensor-parallel-size: expected 1 to 256, got 257");
  EXPECT_EQ(refused("--pipeline-parallel-size", "0"),
            "--pipeline-parallel-size: expected 1 to 256, got 0");
  for (const char* text : {"9,0", "9,,1", "9,", "a", "9 9", "-1"}) {
    EXPECT_EQ(refused("--pipeline-layers", text),
              std::string("--pipeline-layers: expected the layers of each stage, like 9,9,10,8, "
                          "got '") +
                  text + "'");
  }
  EXPECT_EQ(refused("--num-gpu-blocks-override", "2147483647"),
            "--num-gpu-blocks-override: expected 1 to 2147483646, got 2147483647");
  for (const char* seed : {"-1", "1.5", "18446744073709551616"}) {
    EXPECT_EQ(refused("--seed", seed),
              std::string("--seed: expected an integer from 0 to 18446744073709551615, got '") +
                  seed + "'");
  }
}

TEST(EngineOptions, TakeNoEmptyModel) {
  EXPECT_THROW(parse({""}), CLI::ValidationError);
}

TEST(ParseCount, KnowsVllmsUnits) {
  EXPECT_EQ(parse_count("42", "--x"), 42);
  EXPECT_EQ(parse_count("4k", "--x"), 4000);
  EXPECT_EQ(parse_count("4K", "--x"), 4096);
  EXPECT_EQ(parse_count("2m", "--x"), 2'000'000);
  EXPECT_EQ(parse_count("1G", "--x"), int64_t{1} << 30);
  EXPECT_EQ(parse_count("1T", "--x"), int64_t{1} << 40);
  for (const char* text :
       {"", "k", "4kb", "4 k", "1.5G", "four", "99999999999999999999", "9999999T"}) {
    EXPECT_THROW(parse_count(text, "--x"), UsageError) << text;
  }
}

}  // namespace
}  // namespace quire::cli
