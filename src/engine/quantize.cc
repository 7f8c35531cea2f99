#include "quire/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "engine/output_folder.h"
#include "engine/quantized_files.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/gguf_model.h"
#include "loader/model_config.h"
#include "quantise/calibration.h"
#include "quantise/quantise_plan.h"
#include "quantise/quantise_weights.h"
#include "quire/model_text.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxCalibrationBytes = 256 << 20;
// Tokens of the calibration text that see each other.
constexpr int64_t kCalibrationWindow = 2048;

RoundingTarget target_of(const QuantizeOptions& options, const ModelConfig& config) {
  RoundingTarget target;
  target.scale_dtype = config.dtype;
  if (options.scheme == QuantizeScheme::kFp8) {
    target.scheme.name = "compressed-tensors float-quantized";
    target.scheme.layout = WeightLayout::kFloat8;
    return target;
  }
  target.scheme.name = "compressed-tensors pack-quantized";
  target.scheme.layout = WeightLayout::kPacked;
  target.scheme.bits = options.scheme == QuantizeScheme::kInt4 ? 4 : 8;
  target.scheme.group_inputs = options.group_size;
  target.scheme.symmetric = options.symmetric || options.scheme != QuantizeScheme::kInt4;
  return target;
}

void check_options(const QuantizeOptions& options) {
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128) {
    throw Error(fmt::format("group_size is {}; expected 32, 64 or 128.", options.group_size));
  }
  if (options.max_calibration_tokens < 1) {
    throw Error(fmt::format("max_calibration_tokens is {}; expected 1 or more.",
                            options.max_calibration_tokens));
  }
  if (options.scheme == QuantizeScheme::kFp8 && !options.calibration.empty()) {
    throw Error("A calibration text is of use for integers; float8 is rounded to the nearest.");
  }
}

// The file's text, or those of its JSON lines.
std::vector<std::string> calibration_texts(const fs::path& path) {
  std::string text = read_text_file(path, kMaxCalibrationBytes);
  if (path.extension() != ".jsonl") return {std::move(text)};
  std::vector<std::string> texts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", path.string(), number);
    const nlohmann::ordered_json object = parse_json_object(line, where);
    const auto found = object.find("text");
    if (found == object.end() || !found->is_string()) {
      throw Error(fmt::format("{}: expected an object with a \"text\".", where));
    }
    texts.push_back(found->get<std::string>());
  }
  return texts;
}

void check_tokens(std::span<const int32_t> ids, const ModelConfig& config) {
  for (const int32_t id : ids) {
    if (id < config.vocab_size) continue;
    throw Error(fmt::format("The tokenizer has a token {}, but the model has {} only.", id,
                            config.vocab_size));
  }
}

Calibration::Windows windows_of(const QuantizeOptions& options, const fs::path& model,
                                const ModelConfig& config) {
  const Tokenizer tokenizer = load_tokenizer(model);
  const int64_t length = std::min(kCalibrationWindow, config.max_model_len());
  Calibration::Windows windows;
  int64_t left = options.max_calibration_tokens;
  for (const std::string& text : calibration_texts(options.calibration)) {
    if (left == 0) break;
    const std::vector<int32_t> ids = tokenizer.encode(text);
    check_tokens(ids, config);
    for (auto begin = ids.begin(); begin != ids.end() && left > 0;) {
      const auto end = begin + std::min<std::ptrdiff_t>({length, left, ids.end() - begin});
      windows.emplace_back(begin, end);
      left -= end - begin;
      begin = end;
    }
  }
  if (windows.empty()) {
    throw Error(fmt::format("{}: the text is empty.", options.calibration.string()));
  }
  return windows;
}

int64_t tokens_in(const Calibration::Windows& windows) {
  int64_t count = 0;
  for (const auto& window : windows) count += std::ssize(window);
  return count;
}

}  // namespace

std::optional<QuantizeResult> quantize(const QuantizeOptions& options) {
  check_options(options);
  const fs::path model = resolve_model(options.model);
  if (is_gguf_path(model)) {
    throw Error(fmt::format(
        "{}: a GGUF file has no tokenizer.json, which the quantised folder needs; quantise the "
        "model's folder of safetensors. --quantization int8 or int4 rounds this file as it loads.",
        model.string()));
  }
  const ModelConfig config = load_model_config(model);
  const Checkpoint checkpoint = Checkpoint::open(model);
  const RoundingTarget target = target_of(options, config);
  const QuantisePlan plan = plan_quantisation(checkpoint, config, target);

  OutputFolder folder(options.out);
  ThreadPool pool(options.threads > 0 ? options.threads : cpu_topology().num_physical_cores);
  QuantizeResult result;
  result.model = model;
  result.out = options.out;
  result.scheme = target.scheme.describe();
  std::unique_ptr<Calibration> calibration;
  if (!options.calibration.empty()) {
    Calibration::Windows windows = windows_of(options, model, config);
    result.calibration_tokens = tokens_in(windows);
    calibration =
        std::make_unique<Calibration>(checkpoint, config, target, std::move(windows), pool);
  }

  copy_texts(model, folder.partial());
  const std::optional<WrittenWeights> written =
      quantise_weights({checkpoint, config, plan, target}, folder.partial(), calibration.get(),
                       pool, options.on_progress);
  if (!written) return std::nullopt;
  write_quantized_config(model, folder.partial(), target, plan.kept);
  folder.put_in_place();

  result.num_quantized = std::ranges::count(plan.matrices, true, &PlannedMatrix::is_rounded);
  result.kept = plan.kept;
  result.bytes_before = static_cast<int64_t>(plan.source_bytes);
  result.bytes_after = static_cast<int64_t>(written->bytes);
  result.relative_error = std::sqrt(written->squared_error);
  return result;
}

}  // namespace quire
