#include "layers/gpu_lora.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

// The alignment of pieces of a GPU's memory.
constexpr size_t kPieceAlignment = 256;

int64_t padded_rank(int64_t rank) {
  return round_up<int64_t>(rank, ops::kLoraRankStep);
}

// The parts of a site that its rank has. Of an embedding all ranks have the whole.
std::vector<ParameterPart> parts_of(const LoraSite& site) {
  if (!site.is_embedding) return site.parts;
  return {{.shape = {site.n, site.k}, .rows = {0, site.n}, .columns = {0, site.k}, .first_row = 0}};
}

// Numbers of scratch for a layer's sums, at most.
int64_t most_sums(const LoraSite& site, const GpuLoraLimits& limits, int64_t ranks) {
  const int64_t rows = site.is_output ? limits.max_logits : limits.max_rows;
  if (site.is_embedding) return rows * ranks;
  return ranks * std::max(rows, ops::kMaxLoraSplits * std::min(rows, ops::kMostLoraSplitRows));
}

template <typename To, typename From>
void convert_row(const From* from, int64_t count, To* to) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
  }
}

template <typename To>
void convert_row_to(const Tensor& source, int64_t row, To* to) {
  const int64_t count = source.dim(1);
  switch (source.dtype()) {
    case DType::kFloat32:
      return convert_row(source.row<float>(row), count, to);
    case DType::kBFloat16:
      return convert_row(source.row<BFloat16>(row), count, to);
    case DType::kFloat16:
      return convert_row(source.row<Float16>(row), count, to);
    default:
      check(false, "an adapter has float32, bfloat16 or float16");
  }
}

void write_row(const Tensor& source, int64_t row, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kBFloat16:
      return convert_row_to(source, row, reinterpret_cast<BFloat16*>(to));
    case DType::kFloat16:
      return convert_row_to(source, row, reinterpret_cast<Float16*>(to));
    default:
      return convert_row_to(source, row, reinterpret_cast<float*>(to));
  }
}

}  // namespace

GpuLora::Layout GpuLora::lay_out(const LoraSites& sites, const GpuLoraLimits& limits) {
  Layout layout;
  const size_t element = size_of(limits.dtype);
  const int64_t rank = padded_rank(limits.max_rank);
  const auto take = [&](int64_t count, size_t of_one) {
    const size_t bytes = align_up(static_cast<size_t>(count) * of_one, kPieceAlignment);
    return std::exchange(layout.slot_bytes, layout.slot_bytes + bytes);
  };
  for (const auto& [name, site] : sites.all()) {
    const std::vector<ParameterPart> parts = parts_of(site);
    const auto num_parts = static_cast<int64_t>(parts.size());
    check(num_parts >= 1 && num_parts <= ops::kMaxLoraParts, "a layer has one to three parts");
    ops::LoraSlotLayer layer = {.dtype = limits.dtype,
                                .is_embedding = site.is_embedding,
                                .k = site.k,
                                .max_ranks = num_parts * rank,
                                .num_parts = static_cast<int>(num_parts)};
    Place place = {.a = take(layer.max_ranks * site.k, element)};
    for (size_t i = 0; i < parts.size(); ++i) {
      layer.first_output[i] = parts[i].first_row;
      layer.num_outputs[i] = parts[i].rows.size();
      place.b[i] = take(layer.num_outputs[i] * rank, element);
      place.factor[i] = take(layer.num_outputs[i], sizeof(float));
      place.added[i] = take(layer.num_outputs[i], sizeof(float));
    }
    const int64_t sums = most_sums(site, limits, layer.max_ranks);
    layout.sums_bytes = std::max(layout.sums_bytes, static_cast<size_t>(sums) * sizeof(float));
    if (num_parts == 2) {
      const int64_t rows = std::min(limits.max_rows, kMostGatedRows);
      layout.gate_up_bytes =
          std::max(layout.gate_up_bytes, static_cast<size_t>(rows * site.n) * element);
    }
    layout.sites.push_back(&site);
    layout.layers.push_back(layer);
    layout.places.push_back(place);
  }
  if (limits.dtype != DType::kFloat32 && ops::gains_by_lora_tiles(limits.max_loras, rank)) {
    layout.flags_bytes = align_up(layout.sites.size() * sizeof(uint32_t), kPieceAlignment);
    layout.tiles_bytes = static_cast<size_t>(ops::lora_tiles_bytes(limits.max_loras, rank));
  }
  for (const auto& [tensor, norm] : sites.norms()) {
    if (norm.of_heads) continue;
    layout.norms.push_back(
        {.tensor = tensor, .layer = norm.layer, .weight = take(norm.size, sizeof(float))});
  }
  return layout;
}

size_t GpuLora::bytes(const LoraSites& sites, const GpuLoraLimits& limits) {
  const Layout layout = lay_out(sites, limits);
  const auto slots = static_cast<size_t>(limits.max_loras);
  const auto piece = [](size_t bytes) { return align_up(bytes, kPieceAlignment); };
  return piece(slots * layout.slot_bytes) +
         piece(slots * layout.sites.size() * sizeof(ops::CudaLoraLayer)) +
         piece(slots * layout.norms.size() * sizeof(const float*)) + piece(layout.sums_bytes) +
         piece(layout.gate_up_bytes) + piece(layout.flags_bytes + layout.tiles_bytes) +
         GpuLoraCopies::bytes(sites, limits);
}

GpuLora::GpuLora(LoraSites sites, const GpuLoraLimits& limits, const Device& device)
    : sites_(std::move(sites)),
      dtype_(limits.dtype),
      memory_(*device.memory),
      layout_(lay_out(sites_, limits)),
      slots_(static_cast<size_t>(limits.max_loras) * layout_.slot_bytes, device),
      table_(
          static_cast<size_t>(limits.max_loras) * layout_.sites.size() * sizeof(ops::CudaLoraLayer),
          device),
      norm_table_(
          static_cast<size_t>(limits.max_loras) * layout_.norms.size() * sizeof(const float*),
          device),
      sums_(layout_.sums_bytes, device),
      gate_up_(layout_.gate_up_bytes, device),
      tiles_(layout_.flags_bytes + layout_.tiles_bytes, device),
      copies_(sites_, limits, device),
      extras_(static_cast<size_t>(limits.max_loras)) {
  const auto* table = reinterpret_cast<const ops::CudaLoraLayer*>(table_.data());
  for (size_t i = 0; i < layout_.sites.size(); ++i) {
    ops::LoraSlotLayer layer = layout_.layers[i];
    layer.slots = table + i;
    layer.stride = std::ssize(layout_.sites);
    if (layout_.tiles_bytes > 0) {
      layer.tiles = {
          .memory = tiles_.data() + layout_.flags_bytes,
          .num_slots = limits.max_loras,
          .slot_ranks = static_cast<int32_t>(padded_rank(limits.max_rank)),
          .inputs_are_there = reinterpret_cast<uint32_t*>(tiles_.data()) + i,
      };
    }
    (layer.is_embedding ? embeddings_ : layers_).emplace(layout_.sites[i]->layer, layer);
  }
  const auto* norms = reinterpret_cast<const float* const*>(norm_table_.data());
  for (size_t i = 0; i < layout_.norms.size(); ++i) {
    norms_.emplace(layout_.norms[i].layer,
                   ops::LoraSlotNorm{.slots = norms + i, .stride = std::ssize(layout_.norms)});
  }
}

void GpuLora::add(const LoraLayer& module, const LoraSites::Found& found, size_t site,
                  std::byte* slot, ops::CudaLoraLayer& entry, Copies& copies) const {
  const LoraSite& held = *found.site;
  const Place& place = layout_.places[site];
  const int64_t rank = padded_rank(module.rank);
  const std::vector<ParameterPart> parts = parts_of(held);
  const size_t begin = found.part.value_or(0);
  const size_t end = found.part ? begin + 1 : parts.size();
  const IndexRange inputs = parts[begin].columns;
  if (rank > 0) {
    auto* const a = slot + place.a + static_cast<size_t>(entry.ranks * held.k) * size_of(dtype_);
    copies.matrices.push_back({.to = a,
                               .rows = rank,
                               .columns = held.k,
                               .source = module.a.tensor().columns(inputs.begin, inputs.end)});
  }
  const auto keep = [&](size_t at, const std::vector<float>& values, const IndexRange& range) {
    auto* const to = reinterpret_cast<float*>(slot + at);
    const std::span<const float> all = values;
    copies.vectors.push_back(
        {to, all.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))});
    return to;
  };
  int64_t offset = 0;  // of the part in the module
  for (size_t i = begin; i < end; ++i) {
    const ParameterPart& part = parts[i];
    const IndexRange rows = {offset + part.rows.begin, offset + part.rows.end};
    offset += part.shape[0];
    if (rows.size() == 0) continue;
    if (rank > 0) {
      auto* const b = slot + place.b[i];
      entry.b[i] = b;
      entry.first_rank[i] = entry.ranks;
      entry.rank[i] = static_cast<int32_t>(rank);
      entry.scale[i] = module.scale;
      copies.matrices.push_back({.to = b,
                                 .rows = rows.size(),
                                 .columns = rank,
                                 .source = module.b.tensor().rows(rows.begin, rows.end)});
    }
    if (!module.factor.empty()) entry.factor[i] = keep(place.factor[i], module.factor, rows);
    if (!module.added_bias.empty() && held.adds_bias) {
      entry.added[i] = keep(place.added[i], module.added_bias, rows);
    }
  }
  entry.a = slot + place.a;
  entry.ranks += static_cast<int32_t>(rank);
}

void GpuLora::upload(const Copy& copy) const {
  const size_t row_bytes = static_cast<size_t>(copy.columns) * size_of(dtype_);
  memory_.upload(copy.to, static_cast<size_t>(copy.rows) * row_bytes, [&](std::byte* from) {
    std::memset(from, 0, static_cast<size_t>(copy.rows) * row_bytes);
    for (int64_t row = 0; row < copy.source.dim(0); ++row) {
      write_row(copy.source, row, dtype_, from + static_cast<size_t>(row) * row_bytes);
    }
  });
}

std::vector<const float*> GpuLora::place_norms(const LoraWeights& weights, std::byte* slot,
                                               Copies& copies) const {
  std::vector<const float*> placed;
  for (const NormPlace& norm : layout_.norms) {
    const auto trained = weights.norms.find(norm.tensor);
    if (trained == weights.norms.end()) {
      placed.push_back(nullptr);
      continue;
    }
    auto* const to = reinterpret_cast<float*>(slot + norm.weight);
    copies.vectors.push_back({to, trained->second});
    placed.push_back(to);
  }
  return placed;
}

template <typename Entry>
void GpuLora::upload_row(const Buffer& table, int slot, const std::vector<Entry>& row) const {
  const size_t bytes = row.size() * sizeof(Entry);
  if (bytes == 0) return;
  memory_.upload(table.data() + static_cast<size_t>(slot) * bytes, bytes,
                 [&](std::byte* from) { std::memcpy(from, row.data(), bytes); });
}

void GpuLora::store(int slot, const LoraWeights& weights, ThreadPool& pool) {
  std::vector<ops::CudaLoraLayer> entries(layout_.sites.size());
  Copies copies;
  LoraExtras extras;
  auto* const to = slots_.data() + static_cast<size_t>(slot) * layout_.slot_bytes;
  for (const LoraLayer& module : weights.layers) {
    const LoraSites::Found found = sites_.find(module.name);
    if (found.site == nullptr) continue;
    extras.embedding |= found.site->is_embedding;
    extras.output |= found.site->is_output;
    extras.vectors |= !found.site->is_embedding && !found.site->is_output &&
                      (!module.factor.empty() || !module.added_bias.empty());
    const auto site = std::ranges::find(layout_.sites, found.site) - layout_.sites.begin();
    add(module, found, static_cast<size_t>(site), to, entries[static_cast<size_t>(site)], copies);
  }
  const std::vector<const float*> norms = place_norms(weights, to, copies);
  extras.norms = std::ranges::any_of(norms, [](const float* norm) { return norm != nullptr; });
  extras.copies = weights.has_copies();
  copies_.store(slot, sites_, weights, pool);
  pool.parallel_for(std::ssize(copies.matrices),
                    [&](int64_t task, int) { upload(copies.matrices[static_cast<size_t>(task)]); });
  for (const VectorCopy& copy : copies.vectors) {
    memory_.upload(
        reinterpret_cast<std::byte*>(copy.to), copy.source.size_bytes(),
        [&](std::byte* from) { std::memcpy(from, copy.source.data(), copy.source.size_bytes()); });
  }
  upload_row(table_, slot, entries);
  upload_row(norm_table_, slot, norms);
  memory_.finish_uploads();
  extras_[static_cast<size_t>(slot)] = extras;
}

const ops::LoraSlotLayer* GpuLora::find(const void* layer) const {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? nullptr : &found->second;
}

const ops::LoraSlotLayer* GpuLora::find_embedding(const void* layer) const {
  const auto found = embeddings_.find(layer);
  return found == embeddings_.end() ? nullptr : &found->second;
}

const ops::LoraSlotNorm* GpuLora::find_norm(const void* layer) const {
  const auto found = norms_.find(layer);
  return found == norms_.end() ? nullptr : &found->second;
}

Tensor GpuLora::sums(const ops::LoraSlotLayer& layer, int64_t rows) const {
  const int64_t count = ops::lora_sums(layer, rows);
  check(static_cast<size_t>(count) * sizeof(float) <= sums_.size(), "the plan has room for sums");
  return {sums_.data(), DType::kFloat32, {count}};
}

Tensor GpuLora::gate_up(int64_t rows, int64_t n) const {
  check(static_cast<size_t>(rows * n) * size_of(dtype_) <= gate_up_.size(),
        "the plan has room for a gated layer's outputs");
  return {gate_up_.data(), dtype_, {rows, n}};
}

Tensor GpuLora::tiles() const {
  return {tiles_.data(), DType::kUInt8, {static_cast<int64_t>(tiles_.size())}};
}

bool GpuLoraStep::may_multiply() const {
  return !rows_.extras.vectors && !rows_.extras.copies &&
         rows_.tokens.num_rows <= ops::kLoraTileRows && adapters_.tiles().dim(0) > 0;
}

void GpuLoraStep::begin(Stream& stream) const {
  if (may_multiply()) ops::lora_begin(stream, adapters_.tiles());
}

bool GpuLoraStep::multiply(Stream& stream, const ops::LoraSlotLayer& layer, const Tensor& in,
                           const ops::Weight& weight, const Tensor& bias, bool gated,
                           const Tensor& out) const {
  return may_multiply() && in.dim(0) == rows_.tokens.num_rows &&
         ops::lora_linear(stream, rows_.tokens, layer, in, weight, bias, gated, out);
}

ops::CudaLoraRows GpuLoraStep::rows_from(int64_t first_row, int64_t num_rows) const {
  ops::CudaLoraRows rows = rows_.tokens;
  rows.first_row = first_row;
  rows.num_rows = num_rows;
  return rows;
}

void GpuLoraStep::shrink(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
                         const Tensor& in) const {
  ops::lora_shrink(stream, rows_from(first_row, in.dim(0)), layer, in,
                   adapters_.sums(layer, in.dim(0)), *branch_);
}

void GpuLoraStep::multiply_copies(Stream& stream, const void* layer, int64_t first_row,
                                  const Tensor& in, const Tensor& bias, const Tensor& out) const {
  if (!rows_.extras.copies) return;
  adapters_.copies().multiply(stream, rows_.token_order, layer, first_row, in, bias, out);
}

void GpuLoraStep::expand(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
                         const Tensor& bias, const Tensor& out) const {
  ops::lora_expand(stream, rows_from(first_row, out.dim(0)), layer,
                   adapters_.sums(layer, out.dim(0)), bias, out, *branch_);
}

void GpuLoraStep::expand_gated(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
                               const Tensor& bias, const Tensor& gate_up, const Tensor& out) const {
  ops::lora_expand_gated(stream, rows_from(first_row, out.dim(0)), layer,
                         adapters_.sums(layer, out.dim(0)), bias, gate_up, out, *branch_);
}

const ops::LoraSlotLayer* GpuLoraStep::find_output(const void* layer) const {
  return rows_.extras.output ? adapters_.find(layer) : nullptr;
}

void GpuLoraStep::shrink_logits(Stream& stream, const ops::LoraSlotLayer& layer,
                                const Tensor& in) const {
  ops::lora_shrink(stream, rows_.logits, layer, in, adapters_.sums(layer, in.dim(0)), *branch_);
}

void GpuLoraStep::multiply_copies_of_logits(Stream& stream, const void* layer, const Tensor& in,
                                            const Tensor& out) const {
  if (!rows_.extras.copies) return;
  adapters_.copies().multiply(stream, rows_.logits_order, layer, 0, in, Tensor(), out);
}

void GpuLoraStep::expand_logits(Stream& stream, const ops::LoraSlotLayer& layer,
                                const Tensor& out) const {
  ops::lora_expand(stream, rows_.logits, layer, adapters_.sums(layer, out.dim(0)), Tensor(), out,
                   *branch_);
}

void GpuLoraStep::look_up_copies(Stream& stream, const void* layer, const Tensor& token_ids,
                                 const Tensor& out) const {
  if (!rows_.extras.copies) return;
  adapters_.copies().look_up(stream, rows_.token_order, layer, token_ids, out);
}

void GpuLoraStep::add_to_embedding(Stream& stream, const void* layer, const Tensor& token_ids,
                                   const Tensor& out) const {
  const ops::LoraSlotLayer* slots =
      rows_.extras.embedding ? adapters_.find_embedding(layer) : nullptr;
  if (slots == nullptr) return;
  const Tensor sums = adapters_.sums(*slots, out.dim(0));
  ops::lora_look_up(stream, rows_.tokens, *slots, token_ids, sums);
  ops::lora_expand(stream, rows_.tokens, *slots, sums, Tensor(), out, *branch_);
}

void GpuLoraStep::replace_norm(Stream& stream, const void* layer, float eps, const Tensor& in,
                               const Tensor& out) const {
  const ops::LoraSlotNorm* slots = rows_.extras.norms ? adapters_.find_norm(layer) : nullptr;
  if (slots != nullptr) ops::lora_norm(stream, rows_.tokens, *slots, eps, in, out);
}

void GpuLoraStep::norm_rope_cache(Stream& stream, const void* q_norm, const void* k_norm,
                                  const Tensor& qkv, int num_heads, const ops::QkNormRope& base,
                                  const ForwardBatch& batch, const KvCacheView& cache) const {
  if (!rows_.extras.copies) {
    return ops::qk_norm_rope_cache(stream, qkv, num_heads, base, batch, cache);
  }
  adapters_.copies().norm_rope_cache(stream, rows_.token_order, q_norm, k_norm, qkv, num_heads,
                                     base, batch, cache);
}

}  // namespace quire
