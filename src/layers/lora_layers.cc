#include "layers/lora_layers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "core/counting_memory.h"

namespace quire {
namespace {

// For a module that is all of a layer's parts: where part `index` begins in it.
int64_t first_row_of(const LoraSite& site, size_t index) {
  int64_t row = 0;
  for (size_t i = 0; i < index; ++i) row += site.parts[i].shape[0];
  return row;
}

// Columns of an embedding's matrix that are turned around at a time: there may be a copy of these
// in float32, and none of the whole matrix.
constexpr int64_t kTurnedColumns = 64;

// [columns, rows] of some columns of a matrix, as float32.
std::vector<float> transposed(const LoraMatrix& matrix, IndexRange columns) {
  ops::Weight rows(DType::kFloat32, matrix.rows, columns.size());
  rows.pack_rows(0, matrix.tensor().columns(columns.begin, columns.end));
  std::vector<float> row(static_cast<size_t>(columns.size()));
  std::vector<float> result(static_cast<size_t>(matrix.rows * columns.size()));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    rows.unpack_row(r, row.data());
    for (int64_t c = 0; c < columns.size(); ++c) {
      result[static_cast<size_t>(c * matrix.rows + r)] = row[static_cast<size_t>(c)];
    }
  }
  return result;
}

}  // namespace

// Hands out an adapter's memory from few large pieces: there may be more matrices and vectors than
// pieces that a process may map.
class LoraMemory final : public DeviceMemory {
 public:
  std::byte* take(size_t bytes) override {
    const size_t size = align_up(bytes, 256);
    if (pieces_.empty() || pieces_.back().size() - used_ < size) {
      pieces_.emplace_back(std::max(size, kPieceBytes));
      used_ = 0;
    }
    return pieces_.back().data() + std::exchange(used_, used_ + size);
  }
  void upload(std::byte*, size_t, const std::function<void(std::byte*)>&) override {
    check(false, "an adapter on the CPU is written in place");
  }
  void finish_uploads() override {}
  void download(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

 private:
  static constexpr size_t kPieceBytes = size_t{8} << 20;

  std::vector<Buffer> pieces_;
  size_t used_ = 0;  // of the last
};

LoraSites::Found LoraSites::find(std::string_view module) const {
  if (const auto site = sites_.find(module); site != sites_.end()) return {&site->second, {}};
  const size_t dot = module.rfind('.');
  const size_t leaf = dot == std::string_view::npos ? 0 : dot + 1;
  const auto packed = packed_.find(module.substr(leaf));
  if (packed == packed_.end()) return {};
  const auto site = sites_.find(std::string(module.substr(0, leaf)) + packed->second.module);
  if (site == sites_.end()) return {};
  return {&site->second, packed->second.part};
}

const void* LoraSites::find_norm(std::string_view tensor) const {
  const auto norm = norms_.find(tensor);
  return norm == norms_.end() ? nullptr : norm->second.layer;
}

bool LoraShare::has_copies() const {
  return std::ranges::any_of(parts, [](const LoraPart& part) { return part.copy.has_value(); });
}

LoraLayers::~LoraLayers() = default;
LoraLayers::LoraLayers(LoraLayers&&) noexcept = default;
LoraLayers& LoraLayers::operator=(LoraLayers&&) noexcept = default;

LoraLayers::LoraLayers(const LoraWeights& weights, const LoraSites& sites, DType dtype,
                       ThreadPool& pool)
    : dtype_(dtype), memory_(std::make_unique<LoraMemory>()) {
  // The rank's modules, layer by layer: those of one layer share a product.
  std::map<const LoraSite*, std::vector<std::pair<const LoraLayer*, LoraSites::Found>>> by_site;
  for (const LoraLayer& layer : weights.layers) {
    const LoraSites::Found found = sites.find(layer.name);
    if (found.site != nullptr) by_site[found.site].emplace_back(&layer, found);
  }
  std::vector<Packing> packings;
  for (const auto& [site, modules] : by_site) {
    if (site->is_embedding) {
      add_embedding(*modules.front().first, embeddings_[site->layer], packings);
      continue;
    }
    LoraShare& share = shares_[site->layer];
    int64_t ranks = 0;
    for (const auto& [layer, found] : modules) ranks += layer->rank;
    if (ranks > 0) share.a = weight(ranks, site->k);
    for (const auto& [layer, found] : modules) add(*layer, found, share, packings);
  }
  pack(packings, pool);
  for (const auto& [tensor, weight] : weights.norms) {
    const void* norm = sites.find_norm(tensor);
    if (norm != nullptr) norms_[norm] = keep(weight, {0, static_cast<int64_t>(weight.size())});
  }
}

ops::Weight LoraLayers::weight(int64_t n, int64_t k) const {
  Device device;
  device.memory = memory_.get();
  return {dtype_, n, k, device};
}

ops::Weight& LoraLayers::weight_of(const Packing& packing) {
  if (!packing.part) return *packing.share->a;
  LoraPart& part = packing.share->parts[*packing.part];
  return packing.is_copy ? *part.copy : part.b;
}

void LoraLayers::add_copy(LoraShare& share, const Tensor& source, std::vector<Packing>& packings) {
  constexpr int64_t kRows = 4096;  // of a piece: threads pack several at a time
  share.parts.back().copy = weight(source.dim(0), source.dim(1));
  for (int64_t begin = 0; begin < source.dim(0); begin += kRows) {
    packings.push_back({.share = &share,
                        .part = share.parts.size() - 1,
                        .is_copy = true,
                        .first_row = begin,
                        .source = source.rows(begin, std::min(source.dim(0), begin + kRows))});
  }
}

void LoraLayers::pack(std::span<const Packing> packings, ThreadPool& pool) {
  pool.parallel_for(std::ssize(packings), [&](int64_t task, int) {
    const Packing& packing = packings[static_cast<size_t>(task)];
    weight_of(packing).pack_rows(packing.first_row, packing.source);
  });
}

void LoraLayers::add(const LoraLayer& layer, const LoraSites::Found& found, LoraShare& share,
                     std::vector<Packing>& packings) {
  const LoraSite& site = *found.site;
  int64_t first_rank = 0;
  for (const LoraPart& part : share.parts)
    first_rank = std::max(first_rank, part.first_rank + part.rank);
  const size_t begin = found.part.value_or(0);
  const size_t end = found.part ? begin + 1 : site.parts.size();
  if (layer.rank > 0) {
    const IndexRange columns = site.parts[begin].columns;
    packings.push_back({.share = &share,
                        .first_row = first_rank,
                        .source = layer.a.tensor().columns(columns.begin, columns.end)});
  }
  for (size_t i = begin; i < end; ++i) {
    const ParameterPart& held = site.parts[i];
    const int64_t offset = found.part ? 0 : first_row_of(site, i);
    const IndexRange rows = {offset + held.rows.begin, offset + held.rows.end};
    if (rows.size() == 0) continue;
    LoraPart part = {.first_output = held.first_row,
                     .num_outputs = rows.size(),
                     .first_rank = first_rank,
                     .rank = layer.rank,
                     .scale = layer.scale};
    if (layer.rank > 0) {
      part.b = weight(rows.size(), layer.rank);
      packings.push_back({.share = &share,
                          .part = share.parts.size(),
                          .source = layer.b.tensor().rows(rows.begin, rows.end)});
    }
    if (!layer.factor.empty()) part.factor = keep(layer.factor, rows);
    if (!layer.added_bias.empty() && site.adds_bias) part.added_bias = keep(layer.added_bias, rows);
    share.parts.push_back(std::move(part));
    if (!layer.copy.empty()) {
      const Tensor copied = layer.copy.tensor().rows(rows.begin, rows.end);
      add_copy(share, copied.columns(held.columns.begin, held.columns.end), packings);
    }
  }
}

void LoraLayers::add_embedding(const LoraLayer& layer, LoraShare& share,
                               std::vector<Packing>& packings) {
  share.parts.push_back({.rank = layer.rank, .scale = layer.scale});
  if (!layer.copy.empty()) {
    share.parts.back().num_outputs = layer.copy.columns;
    add_copy(share, layer.copy.tensor(), packings);
  }
  if (layer.rank == 0) return;
  share.a = weight(layer.a.columns, layer.rank);
  for (int64_t begin = 0; begin < layer.a.columns; begin += kTurnedColumns) {
    const IndexRange columns = {begin, std::min(layer.a.columns, begin + kTurnedColumns)};
    std::vector<float> table = transposed(layer.a, columns);
    share.a->pack_rows(begin, {table.data(), DType::kFloat32, {columns.size(), layer.rank}});
  }
  LoraPart& part = share.parts.back();
  part.num_outputs = layer.b.rows;
  part.b = weight(layer.b.rows, layer.rank);
  part.b.pack_rows(0, layer.b.tensor());
  if (!layer.factor.empty()) part.factor = keep(layer.factor, {0, layer.b.rows});
}

Tensor LoraLayers::keep(const std::vector<float>& values, IndexRange range) {
  const auto bytes = static_cast<size_t>(range.size()) * sizeof(float);
  std::byte* const to = memory_->take(bytes);
  std::memcpy(to, values.data() + range.begin, bytes);
  return {to, DType::kFloat32, {range.size()}};
}

const LoraShare* LoraLayers::find(const void* layer) const {
  const auto found = shares_.find(layer);
  return found == shares_.end() ? nullptr : &found->second;
}

const LoraShare* LoraLayers::find_embedding(const void* layer) const {
  const auto found = embeddings_.find(layer);
  return found == embeddings_.end() ? nullptr : &found->second;
}

Tensor LoraLayers::find_norm(const void* layer) const {
  const auto found = norms_.find(layer);
  return found == norms_.end() ? Tensor() : found->second;
}

size_t lora_bytes(const LoraSites& sites, int64_t rank, DType dtype) {
  CountingMemory memory;
  Device device;
  device.memory = &memory;
  for (const auto& [name, site] : sites.all()) {
    if (site.is_embedding) {
      const ops::Weight a(dtype, site.k, rank, device);
      const ops::Weight b(dtype, site.n, rank, device);
      continue;
    }
    const ops::Weight a(dtype, rank * static_cast<int64_t>(site.parts.size()), site.k, device);
    for (const ParameterPart& part : site.parts) {
      if (part.rows.size() > 0) const ops::Weight b(dtype, part.rows.size(), rank, device);
    }
  }
  return memory.taken();
}

}  // namespace quire
