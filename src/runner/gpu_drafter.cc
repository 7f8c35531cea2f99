#include "runner/gpu_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "loader/checkpoint.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "ops/cuda/kernels.h"
#include "ops/sampling_noise.h"
#include "runner/gpu_batch.h"
#include "runner/gpu_draft_model.h"
#include "runner/gpu_eagle_drafter.h"

namespace quire {
namespace {

// Runs without a graph before one is made anew, where there was no memory for it.
constexpr int64_t kRunsBetweenDraftCaptures = 1000;

SamplingPlaces places_on_gpu(std::span<const StepSequence> sequences) {
  SamplingPlaces places;
  for (const StepSequence& sequence : sequences) {
    places.rows.insert(places.rows.end(), static_cast<size_t>(sequence.chunk.num_logits_rows()),
                       SamplingPlace::kGpu);
  }
  return places;
}

}  // namespace

std::unique_ptr<GpuDrafter> GpuDrafter::make(const RunnerOptions& options, const GpuDraftHome& home,
                                             const Model& target) {
  ModelOptions part = options.draft->model;
  part.rank = home.comm.rank();
  part.size = home.comm.size();
  part.device = home.device;
  // The kernel of a whole step would write over the words of the target's.
  part.has_peer_words = false;
  if (part.eagle) return std::make_unique<GpuEagleDrafter>(options, home, part, target);
  return std::make_unique<GpuDraftModel>(options, home, part);
}

namespace {

size_t model_activation_bytes(const RunnerOptions& options, const ModelOptions& part) {
  return CountedModel(part).activation_bytes(options.max_tokens, max_drafting(options));
}

}  // namespace

int64_t GpuDrafter::step_bytes(const RunnerOptions& options, const ModelOptions& part) {
  const auto of_model = static_cast<int64_t>(model_activation_bytes(options, part));
  return part.eagle ? of_model + GpuEagleDrafter::extra_step_bytes(options) : of_model;
}

int64_t GpuDrafter::bytes_per_token(const ModelOptions& model) {
  return model.eagle ? GpuEagleDrafter::known_bytes_per_token(model) : 0;
}

GpuDrafter::GpuDrafter(const RunnerOptions& options, const GpuDraftHome& home,
                       const ModelOptions& part, int64_t extra_arena_bytes, int64_t token_offset)
    : options_(options),
      home_(home),
      sizes_(gpu_draft_sizes(home.library.kernels(), options)),
      token_offset_(token_offset),
      model_(create_model(part)),
      kv_cache_(model_->kv_cache_shape(), options.draft->kv_cache_dtype, options.block_size,
                options.num_blocks, home.device),
      arena_(Buffer(model_activation_bytes(options, part) + static_cast<size_t>(extra_arena_bytes),
                    home.device)),
      inputs_(home.library, home.device, sizes_),
      attention_scratch_(static_cast<size_t>(sizes_.attention_scratch), home.device),
      slots_(options.num_blocks, options.block_size) {
  model_->bind_cache(home.stream, home.comm, kv_cache_.layers());
}

GpuDrafter::~GpuDrafter() = default;

void GpuDrafter::load(const ProgressCallback& on_progress) {
  ThreadPool& pool = home_.stream.pool();
  if (options_.load_format == LoadFormat::kDummy) {
    return fill_dummy_weights(model_->parameters(), options_.seed, pool, on_progress);
  }
  const Checkpoint checkpoint = Checkpoint::open(options_.draft->folder);
  load_weights(checkpoint, model_->parameters(), pool, on_progress);
}

void GpuDrafter::place_drafts(std::span<const StepSequence> sequences) {
  places_.set(sequences, home_.first_id, sizes_.max_drafting);
}

void GpuDrafter::make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                             int32_t* drafts, GpuDraftEvents& events) {
  for (const StepSequence& sequence : sequences) {
    slots_.forget(sequence.state.block_table, sequence.begin, sequence.end());
  }
  read(take_unread(batch, sequences), events);
  if (drafting().empty()) return;

  const std::vector<Pass> passes = take_passes();
  std::vector<StepShape> exact;
  for (const Pass& pass : passes) exact.push_back(exact_shape(pass));
  // All passes read the first one's block tables, which has all of the sequences.
  for (StepShape& shape : exact) shape.table_width = exact.front().table_width;
  const std::vector<StepShape> captured = captured_shapes(passes, exact);
  const std::span<const StepShape> shapes = captured.empty() ? exact : captured;
  const GpuDraftArrays on_host = inputs_.next(shapes);
  for (size_t i = 0; i < passes.size(); ++i) fill(passes[i], shapes[i], on_host.passes[i]);
  fill_known_rows(shapes.front(), on_host);
  events.drafting = GpuDraftEvents::timed(home_.gpu, [&] {
    const GpuDraftArrays arrays = inputs_.upload(home_.gpu);
    if (captured.empty()) {
      for (size_t i = 0; i < passes.size(); ++i) run_pass(i, shapes[i], arrays);
    } else {
      const GraphKey key = {.seqs = shapes.front().num_seqs,
                            .tokens = shapes.front().num_tokens,
                            .queries = shapes.front().max_decode_queries,
                            .table_width = shapes.front().table_width,
                            .passes = shapes.size()};
      events.is_first_of_kind = run_captured(key, shapes, arrays);
    }
    home_.gpu.copy_to_host(drafts, home_.ids + home_.first_id,
                           static_cast<size_t>(num_ids()) * sizeof(int32_t));
  });
}

void GpuDrafter::take(SequenceState& state, int64_t begin, int64_t end,
                      std::vector<Piece>& pieces) {
  if (begin >= end) return;
  slots_.fill(state.block_table, begin, end);
  pieces.push_back({&state, begin, end});
}

void GpuDrafter::read(std::span<const Piece> pieces, GpuDraftEvents& events) {
  if (pieces.empty()) return;
  events.reading.push_back(GpuDraftEvents::timed(home_.gpu, [&] {
    for_each_round(pieces, options_.max_tokens,
                   [this](std::span<const Piece> round) { read_at_once(round); });
  }));
}

GpuDrafter::Pass GpuDrafter::to_pass(std::span<const Piece> pieces, ChunkKind kind) const {
  Pass pass;
  pass.chunks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    pass.chunks.push_back({.kind = kind,
                           .num_tokens = piece.end - piece.begin,
                           .samples = kind == ChunkKind::kDecode});
    pass.sequences.push_back(
        {.chunk = pass.chunks.back(), .state = *piece.state, .begin = piece.begin});
  }
  return pass;
}

void GpuDrafter::read_at_once(std::span<const Piece> pieces) {
  const Pass pass = to_pass(pieces, ChunkKind::kPrefill);
  const std::vector<StepShape> shapes = {exact_shape(pass)};
  const GpuDraftArrays on_host = inputs_.next(shapes);
  fill(pass, shapes.front(), on_host.passes.front());
  fill_known_rows(shapes.front(), on_host);
  run_pass(0, shapes.front(), inputs_.upload(home_.gpu));
}

std::vector<GpuDrafter::Pass> GpuDrafter::take_passes() {
  std::vector<Piece> pieces;
  for (const StepSequence* sequence : drafting()) {
    const int64_t end = first_end(*sequence);
    const int64_t missing = slots_.first_missing(sequence->state.block_table, end);
    pieces.push_back({&sequence->state, std::min(end - 1, missing), end});
  }
  // Only now, as two sequences that share a block both have to write the slots that neither read:
  // they attend to them in the same pass.
  for (const Piece& piece : pieces) {
    slots_.fill(piece.state->block_table, piece.begin, piece.end);
  }
  std::vector<Pass> passes;
  while (!pieces.empty()) {
    passes.push_back(to_pass(pieces, ChunkKind::kDecode));
    const auto has_more = [&](const StepSequence* sequence) {
      return num_drafts_to_make(sequence->chunk) > std::ssize(passes);
    };
    pieces.resize(static_cast<size_t>(std::ranges::count_if(drafting(), has_more)));
    for (Piece& piece : pieces) piece = {piece.state, piece.end, piece.end + 1};
  }
  return passes;
}

StepShape GpuDrafter::exact_shape(const Pass& pass) const {
  return step_shape(pass.sequences, places_on_gpu(pass.sequences), sizes_.largest_step);
}

std::vector<StepShape> GpuDrafter::captured_shapes(std::span<const Pass> passes,
                                                   std::span<const StepShape> exact) const {
  if (options_.enforce_eager) return {};
  StepShape limits = sizes_.largest_step;
  limits.num_seqs = sizes_.max_drafting;
  limits.num_logits = limits.num_tokens;
  for (const StepShape& shape : exact) {
    if (!captured_shape(shape, limits, options_.block_size)) return {};
  }
  std::vector<StepShape> shapes = {*captured_shape(exact.front(), limits, options_.block_size)};
  StepShape& first = shapes.front();
  first.num_logits = first.num_seqs;
  StepShape later = first;
  later.num_tokens = first.num_seqs;
  later.max_decode_queries = later.max_query_len = 1;
  later.num_decode_rows = std::min(later.num_decode_items, limits.num_decode_rows);
  shapes.resize(passes.size(), later);
  return shapes;
}

void GpuDrafter::fill(const Pass& pass, const StepShape& shape, const StepArrays& arrays) const {
  fill_step(pass.sequences, places_on_gpu(pass.sequences), shape, arrays, options_.block_size);
  if (token_offset_ == 0) return;
  int64_t row = 0;
  int64_t logits_row = 0;
  for (const StepSequence& sequence : pass.sequences) {
    const TokenView tokens = sequence.state.tokens();
    for (int64_t position = sequence.begin; position < sequence.end(); ++position, ++row) {
      const int32_t token_id = tokens[static_cast<size_t>(position + token_offset_)];
      arrays.token_sources[row] = row_of_unknown(token_id);
      arrays.token_ids[row] = std::max(token_id, 0);
    }
    if (!sequence.chunk.samples) continue;
    const ops::NoiseKey key = ops::noise_key(sequence.state.request->seed, sequence.state.index,
                                             static_cast<uint64_t>(sequence.end() + token_offset_));
    arrays.noise_keys[2 * logits_row] = key.low;
    arrays.noise_keys[2 * logits_row + 1] = key.high;
    ++logits_row;
  }
}

void GpuDrafter::fill_known_rows(const StepShape& shape, const GpuDraftArrays& arrays) {
  const int64_t* const slots = arrays.passes.front().slot_mapping;
  for (int64_t row = 0; row < shape.num_tokens; ++row) {
    arrays.known_rows[row] = static_cast<int32_t>(std::max<int64_t>(slots[row], 0));
  }
}

void GpuDrafter::run_pass(size_t pass, const StepShape& shape, const GpuDraftArrays& arrays) {
  const StepArrays& inputs = arrays.passes[pass];
  ForwardBatch forward = gpu_forward_batch(inputs, shape);
  forward.attention_scratch = attention_scratch_.data();
  const ops::CudaKernels& kernels = home_.library.kernels();
  kernels.resolve_tokens(home_.gpu.cuda(), {.token_ids = inputs.token_ids,
                                            .sources = inputs.token_sources,
                                            .sampled = home_.ids,
                                            .slot_mapping = inputs.slot_mapping,
                                            .cached_ids = nullptr,
                                            .num_tokens = shape.num_tokens});
  const Arena::Scope scope(arena_);
  ForwardContext context{home_.stream, dtype(), arena_, home_.comm, forward};
  const Tensor hidden = run_model(context, pass, arrays.known_rows);
  if (shape.num_logits == 0) return;
  const Tensor logits = compute_logits(context, hidden);
  const int64_t first_id = home_.first_id + static_cast<int64_t>(pass) * places_.stride();
  kernels.sample(home_.gpu.cuda(), {.logits = logits.data<float>(),
                                    .stride = logits.row_stride(),
                                    .rows = logits.dim(0),
                                    .vocab = logits.dim(1),
                                    .temperature = inputs.temperature,
                                    .top_k = inputs.top_k,
                                    .top_p = inputs.top_p,
                                    .min_p = inputs.min_p,
                                    .noise_keys = inputs.noise_keys,
                                    .out = home_.ids + first_id,
                                    .scratch = home_.sample_scratch});
}

bool GpuDrafter::run_captured(const GraphKey& key, std::span<const StepShape> shapes,
                              const GpuDraftArrays& arrays) {
  Captured& captured = captured_[key];
  const bool is_first_of_kind = captured.graph == nullptr && captured.num_runs <= 1;
  if (captured.graph == nullptr && captured.num_runs % kRunsBetweenDraftCaptures == 1) {
    capture(shapes, arrays, captured);
  }
  if (captured.graph != nullptr) {
    try {
      home_.gpu.launch(*captured.graph);
      return is_first_of_kind;
    } catch (const OutOfDeviceMemory&) {
      captured.graph.reset();
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) run_pass(i, shapes[i], arrays);
  ++captured.num_runs;
  return is_first_of_kind;
}

void GpuDrafter::capture(std::span<const StepShape> shapes, const GpuDraftArrays& arrays,
                         Captured& captured) {
  home_.gpu.begin_capture();
  try {
    for (size_t i = 0; i < shapes.size(); ++i) run_pass(i, shapes[i], arrays);
  } catch (...) {
    home_.gpu.abandon_capture();
    throw;
  }
  try {
    captured.graph = home_.gpu.end_capture();
  } catch (const OutOfDeviceMemory&) {
    // The passes run without one.
  }
}

}  // namespace quire
