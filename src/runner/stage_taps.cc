#include "runner/stage_taps.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

int num_stages_of(const ModelOptions& model) {
  return static_cast<int>(std::max<size_t>(model.stage_layers.size(), 1));
}

int64_t width_of(const std::vector<int64_t>& layers, const EagleConfig& head) {
  return std::ssize(layers) * head.target_hidden_size;
}

// The columns that the stages behind the first hand out.
int64_t width_of_messages(const ModelOptions& model, const EagleConfig& head) {
  return tapped_width(head) - width_of(tapped_layers(model, 0, head), head);
}

size_t bytes_of_taps(int64_t rows, int64_t width) {
  return align_up(static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float));
}

// The most columns that a stage behind the first hands out.
int64_t widest_message(const std::vector<std::vector<int64_t>>& layers, const EagleConfig& head) {
  int64_t widest = 0;
  for (size_t stage = 1; stage < layers.size(); ++stage) {
    widest = std::max(widest, width_of(layers[stage], head));
  }
  return widest;
}

}  // namespace

std::vector<int64_t> tapped_layers(const ModelOptions& model, int stage, const EagleConfig& head) {
  const ModelOptions part = stage_of_model(model, stage);
  const int64_t num_layers = model.config.num_hidden_layers;
  const int64_t last = part.last_layer < 0 ? num_layers : part.last_layer;
  std::vector<int64_t> layers;
  for (const int64_t layer : head.aux_layers) {
    const bool is_output = layer == num_layers && last == num_layers;
    if (is_output || (layer >= part.first_layer && layer < last)) layers.push_back(layer);
  }
  return layers;
}

int64_t tapped_width(const EagleConfig& head) {
  return width_of(head.aux_layers, head);
}

std::vector<TappedPrompt> tapped_prompts(std::span<const StepSequence> sequences) {
  std::vector<TappedPrompt> prompts;
  for (const StepSequence& sequence : sequences) {
    if (sequence.chunk.kind != ChunkKind::kPrefill) continue;
    prompts.push_back({sequence.chunk.id, sequence.state.serial, sequence.begin, sequence.end()});
  }
  return prompts;
}

std::vector<DraftPiece> find_prompts(std::span<const TappedPrompt> prompts, SequenceTable& table) {
  std::vector<DraftPiece> found;
  for (const TappedPrompt& prompt : prompts) {
    SequenceState* const state = table.find(prompt.sequence, prompt.serial);
    if (state != nullptr) found.push_back({state, prompt.begin, prompt.end});
  }
  return found;
}

int64_t StageTaps::bytes(const RunnerOptions& options) {
  const ModelOptions& model = options.model;
  const EagleConfig& head = *options.draft->model.eagle;
  const int num_stages = num_stages_of(model);
  const auto rows = [&](int64_t width) {
    return static_cast<int64_t>(bytes_of_taps(options.max_tokens, width));
  };
  if (num_stages == 1) return model.size * rows(tapped_width(head));
  // The first stage takes what is older than the steps in flight, of which there is one more with
  // async scheduling, and the one that it works on.
  const int64_t num_steps = num_stages + 2;
  int64_t bytes = num_steps * (rows(tapped_width(head)) + rows(width_of_messages(model, head)));
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::vector<int64_t> layers = tapped_layers(model, stage, head);
    // What a stage sends lies in memory of its own, and what comes goes through some of the first.
    if (stage > 0) bytes += 2 * rows(width_of(layers, head));
  }
  return model.size * bytes;
}

StageTaps::StageTaps(const RunnerOptions& options, const RankGroups& groups, Stream& stream)
    : groups_(groups),
      stream_(stream),
      hidden_size_(options.draft->model.eagle->target_hidden_size),
      width_(tapped_width(*options.draft->model.eagle)),
      row_ids_(static_cast<size_t>(options.max_tokens)) {
  const EagleConfig& head = *options.draft->model.eagle;
  for (int stage = 0; stage < groups.pipeline.size(); ++stage) {
    layers_.push_back(tapped_layers(options.model, stage, head));
  }
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  const auto own = static_cast<size_t>(groups.stage());
  const int64_t widest =
      groups.is_first_stage() ? widest_message(layers_, head) : width_of(layers_[own], head);
  message_ = Buffer(bytes_of_taps(options.max_tokens, widest));
  states_.layers = layers_[own];
}

const AuxStates* StageTaps::states_of(int64_t num_tokens) {
  if (groups_.is_first_stage()) {
    Step& step = held_.emplace_back();
    if (spare_.empty()) {
      step.memory = Buffer(bytes_of_taps(std::ssize(row_ids_), width_));
    } else {
      step.memory = std::move(spare_.back());
      spare_.pop_back();
    }
    step.states = Tensor(step.memory.data(), DType::kFloat32, {num_tokens, width_});
    states_.out = columns_of(step, 0);
  } else if (!states_.layers.empty()) {
    states_.out = Tensor(message_.data(), DType::kFloat32,
                         {num_tokens, std::ssize(states_.layers) * hidden_size_});
  }
  if (states_.layers.empty()) return nullptr;
  states_.rows = Tensor(row_ids_.data(), DType::kInt32, {num_tokens});
  return &states_;
}

void StageTaps::send() {
  if (!states_.layers.empty()) groups_.pipeline.send(stream_, states_.out, 0);
}

void StageTaps::hold(const ForwardBatch& forward, std::span<const StepSequence> sequences,
                     bool reads_prompts) {
  Step& step = held_.back();
  const auto* slots = forward.slot_mapping.data<int64_t>();
  step.slots.assign(slots, slots + forward.num_tokens);
  if (reads_prompts) step.prompts = tapped_prompts(sequences);
}

StageTaps::Step StageTaps::take_oldest() {
  check(!held_.empty(), "what a head sees of a step is taken once");
  Step step = std::move(held_.front());
  held_.pop_front();
  return step;
}

Tensor StageTaps::columns_of(const Step& step, int stage) const {
  int64_t first = 0;
  for (int before = 0; before < stage; ++before) {
    first += std::ssize(layers_[static_cast<size_t>(before)]) * hidden_size_;
  }
  const int64_t count = std::ssize(layers_[static_cast<size_t>(stage)]) * hidden_size_;
  return count == 0 ? Tensor() : step.states.columns(first, first + count);
}

Tensor StageTaps::room_for(const Tensor& columns) {
  return Tensor(message_.data(), DType::kFloat32, {columns.dim(0), columns.dim(1)});
}

void StageTaps::copy_rows(const Tensor& from, const Tensor& to) {
  for (int64_t row = 0; row < from.dim(0); ++row) {
    std::memcpy(to.row<float>(row), from.row<float>(row),
                static_cast<size_t>(from.dim(1)) * sizeof(float));
  }
}

}  // namespace quire
