#include "quire/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/byte_progress.h"
#include "engine/gguf_folder.h"
#include "engine/model_files.h"
#include "engine/output_folder.h"
#include "engine/quantized_files.h"
#include "engine/text_file.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/config_json.h"
#include "loader/gguf_config.h"
#include "loader/gguf_model.h"
#include "loader/model_config.h"
#include "quantise/calibration.h"
#include "quantise/calibration_step.h"
#include "quantise/endable_loops.h"
#include "quantise/quantise_plan.h"
#include "quantise/quantise_weights.h"
#include "quire/model_text.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

// Bytes of a long text that are tokenised at a time.
constexpr size_t kTokenizedBytes = 1 << 20;
// Tokens of a window of the calibration text; only these see each other.
constexpr int64_t kCalibrationWindow = 2048;

WeightScheme scheme_of(const QuantizeOptions& options, QuantizeScheme scheme) {
  WeightScheme result;
  if (scheme == QuantizeScheme::kFp8) {
    result.name = "compressed-tensors float-quantized";
    result.layout = WeightLayout::kFloat8;
    return result;
  }
  result.name = "compressed-tensors pack-quantized";
  result.layout = WeightLayout::kPacked;
  result.bits = scheme == QuantizeScheme::kInt4 ? 4 : 8;
  result.group_inputs = options.group_size;
  result.symmetric = options.symmetric || scheme != QuantizeScheme::kInt4;
  return result;
}

RoundingTargets targets_of(const QuantizeOptions& options, const ModelConfig& config) {
  const auto target_of = [&](QuantizeScheme scheme) {
    return RoundingTarget{scheme_of(options, scheme), scale_dtype_for(config.dtype)};
  };
  RoundingTargets targets;
  targets.layers = target_of(options.scheme);
  if (options.output_layer) targets.output = target_of(*options.output_layer);
  return targets;
}

void check_options(const QuantizeOptions& options) {
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128) {
    throw Error(fmt::format("group_size is {}; expected 32, 64 or 128.", options.group_size));
  }
  if (options.max_calibration_tokens < 1) {
    throw Error(fmt::format("max_calibration_tokens is {}; expected 1 or more.",
                            options.max_calibration_tokens));
  }
  if (options.kv_scales && options.calibration.empty()) {
    throw Error("Scales of keys and values are measured by a calibration text; none is given.");
  }
  if (options.scheme == QuantizeScheme::kFp8 && !options.calibration.empty() &&
      !options.kv_scales) {
    throw Error(
        "A calibration text is of use for integers, and for scales of keys and values; float8 is "
        "rounded to the nearest.");
  }
  if (options.output_layer &&
      (options.scheme == QuantizeScheme::kFp8 || options.output_layer == QuantizeScheme::kFp8)) {
    throw Error("The output layer can be rounded to integers, of models whose layers are.");
  }
}

void check_tokens(std::span<const int32_t> ids, const ModelConfig& config) {
  for (const int32_t id : ids) {
    if (id < config.vocab_size) continue;
    throw Error(fmt::format("The tokenizer has a token {}, but the model has only {}.", id,
                            config.vocab_size));
  }
}

// Cuts the texts of the calibration file into windows until they have the requested number of
// tokens. The rest is not tokenised.
class WindowCutter {
 public:
  WindowCutter(const QuantizeOptions& options, const ModelConfig& config)
      : config_(config),
        length_(std::min(kCalibrationWindow, config.max_model_len())),
        left_(options.max_calibration_tokens) {}

  bool wants_more() const { return left_ > 0; }
  void begin_text() { fills_last_ = false; }
  void add(std::span<const int32_t> ids) {
    check_tokens(ids, config_);
    while (!ids.empty() && wants_more()) {
      if (!fills_last_ || std::ssize(windows_.back()) == length_) windows_.emplace_back();
      fills_last_ = true;
      std::vector<int32_t>& window = windows_.back();
      const auto count =
          static_cast<size_t>(std::min({length_ - std::ssize(window), left_, std::ssize(ids)}));
      window.insert(window.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      ids = ids.subspan(count);
      left_ -= static_cast<int64_t>(count);
    }
  }
  const CalibrationWindows& windows() const { return windows_; }

 private:
  const ModelConfig& config_;
  int64_t length_;
  int64_t left_;             // tokens
  bool fills_last_ = false;  // the last window is of the text that is cut
  CalibrationWindows windows_;
};

CalibrationWindows windows_of(const QuantizeOptions& options, const fs::path& model,
                              const ModelConfig& config, const EndableLoops& loops) {
  const Tokenizer tokenizer = load_tokenizer(model);
  WindowCutter cutter(options, config);
  TextFile file(options.calibration);
  while (auto text = cutter.wants_more() ? file.next() : std::nullopt) {
    cutter.begin_text();
    for (size_t begin = 0; begin < text->size() && cutter.wants_more();) {
      loops.check_point();
      const std::string_view piece = leading_lines(text->substr(begin), kTokenizedBytes);
      cutter.add(tokenizer.encode(piece, /*add_special_tokens=*/begin == 0));
      begin += piece.size();
    }
  }
  if (cutter.windows().empty()) {
    throw Error(fmt::format("{}: the text is empty.", options.calibration.string()));
  }
  return cutter.windows();
}

int64_t tokens_in(const CalibrationWindows& windows) {
  int64_t count = 0;
  for (const auto& window : windows) count += std::ssize(window);
  return count;
}

// The model to read, and how to round it.
struct Source {
  fs::path model;
  ModelConfig config;
  Checkpoint checkpoint;
  RoundingTargets targets;
  QuantisePlan plan;
};

// Writes what is beside the weights; returns the names of what is not copied.
std::vector<std::string> write_texts(const Source& source, const fs::path& out) {
  std::vector<std::string> left_out;
  nlohmann::ordered_json config;
  if (is_gguf_path(source.model)) {
    const GgufModel model = GgufModel::open(source.model);
    config = config_json(source.config, gguf_generation_config(model));
    write_gguf_texts(model, out);
  } else {
    config = read_config(source.model);
    left_out = copy_texts(source.model, out);
  }
  set_quantization(config, source.targets, source.plan);
  write_text_file(out / "config.json", config.dump(2) + "\n");
  return left_out;
}

QuantizeResult write_rounded(const QuantizeOptions& options, const Source& source,
                             const EndableLoops& loops, ByteProgress& progress) {
  OutputFolder folder(options.out, "quantized");
  QuantizeResult result;
  std::unique_ptr<Calibration> calibration;
  if (!options.calibration.empty()) {
    const CalibrationWindows windows = windows_of(options, source.model, source.config, loops);
    result.calibration_tokens = tokens_in(windows);
    calibration =
        std::make_unique<Calibration>(source.checkpoint, source.config, source.targets.layers,
                                      windows, source.plan.has_kv_scales, loops);
  }
  result.left_out = write_texts(source, folder.partial());
  const WrittenWeights written = quantise_weights(
      {source.checkpoint, source.config, source.plan, source.config.dtype}, folder.partial(),
      calibration.get(), loops, [&progress](size_t bytes) { progress.add(bytes); });
  folder.put_in_place();

  result.model = source.model;
  result.out = options.out;
  result.scheme = source.targets.layers.scheme.describe();
  if (!source.plan.output.empty()) {
    result.output_scheme = source.targets.output->scheme.describe();
  }
  result.num_quantized = std::ranges::count_if(
      source.plan.matrices, [](const PlannedMatrix& matrix) { return !!matrix.rounded_to; });
  result.kept = source.plan.kept;
  result.bytes_before = static_cast<int64_t>(source.plan.source_bytes);
  result.bytes_after = static_cast<int64_t>(written.bytes);
  result.relative_error = std::sqrt(written.squared_error);
  if (calibration && options.scheme != QuantizeScheme::kFp8) {
    result.relative_output_error = std::sqrt(written.squared_output_error);
  }
  return result;
}

}  // namespace

std::optional<QuantizeResult> quantize(const QuantizeOptions& options) {
  check_options(options);
  const fs::path model = resolve_model(options.model);
  ModelConfig config = load_model_config(model);
  Checkpoint checkpoint = Checkpoint::open(model);
  const RoundingTargets targets = targets_of(options, config);
  QuantisePlan plan = plan_quantisation(checkpoint, config, targets, options.kv_scales);
  const Source source = {model, std::move(config), std::move(checkpoint), targets, std::move(plan)};

  ThreadPool pool(options.threads > 0 ? options.threads : cpu_topology().num_physical_cores);
  ByteProgress progress(options.on_progress, source.plan.source_bytes);
  const EndableLoops loops(pool, [&progress] { return progress.goes_on(); });
  try {
    return write_rounded(options, source, loops, progress);
  } catch (const WorkEnded&) {
    return std::nullopt;
  }
}

}  // namespace quire
