#include "layers/gpu_lora_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/embedding.h"
#include "ops/linear.h"

namespace quire {
namespace {

// The alignment of pieces of a GPU's memory.
constexpr size_t kCopyAlignment = 256;
// Rows that are gathered at a time, where the scratch holds as many: enough for a product to read
// the copy seldom.
constexpr int64_t kMostCopiedRows = 256;
constexpr size_t kMostCopyScratch = size_t{64} << 20;
// Elements that pointers and strides are multiples of (ops/cuda/kernels.h).
constexpr int64_t kAlignedElements = 8;

// A slot's part of memory that was taken before.
class SlotRoom final : public DeviceMemory {
 public:
  SlotRoom(std::byte* begin, size_t bytes, DeviceMemory& memory)
      : next_(begin), left_(bytes), memory_(memory) {}

  std::byte* take(size_t bytes) override {
    const size_t size = align_up(bytes, kCopyAlignment);
    check(size <= left_, "a slot has room for the copies of an adapter that was not refused");
    left_ -= size;
    return std::exchange(next_, next_ + size);
  }
  void upload(std::byte* to, size_t bytes,
              const std::function<void(std::byte* from)>& fill) override {
    memory_.upload(to, bytes, fill);
  }
  void finish_uploads() override { memory_.finish_uploads(); }
  void download(void* to, const std::byte* from, size_t bytes) override {
    memory_.download(to, from, bytes);
  }

 private:
  std::byte* next_;
  size_t left_;
  DeviceMemory& memory_;
};

// Calls body(part, rows) for the rank's shares of a module's matrix, which are `rows` of it.
template <typename Body>
void for_each_share(const LoraSites::Found& found, const Body& body) {
  const std::vector<ParameterPart>& parts = found.site->parts;
  const size_t begin = found.part.value_or(0);
  const size_t end = found.part ? begin + 1 : parts.size();
  int64_t offset = 0;  // of the part in the module
  for (size_t i = begin; i < end; ++i) {
    const ParameterPart& part = parts[i];
    const IndexRange rows = {offset + part.rows.begin, offset + part.rows.end};
    offset += part.shape[0];
    if (rows.size() > 0) body(part, rows);
  }
}

bool is_aligned(const LoraSite& site) {
  // Rows of these are padded, or looked up.
  if (site.is_output || site.is_embedding) return true;
  return site.n % kAlignedElements == 0 &&
         std::ranges::all_of(site.parts, [](const ParameterPart& part) {
           return part.first_row % kAlignedElements == 0;
         });
}

// Scratch for a row whose inputs and outputs are gathered, or what else is needed of them.
size_t bytes_of_row(int64_t k, size_t element, int64_t n, size_t out_element) {
  return align_up(static_cast<size_t>(k) * element) +
         align_up(static_cast<size_t>(n) * out_element) + 2 * kAlignment;
}

size_t bytes_of_row(const LoraSite& site, size_t element) {
  if (site.is_embedding) return bytes_of_row(1, sizeof(int32_t), site.n, element);
  if (!site.is_output) return bytes_of_row(site.k, element, site.n, element);
  return bytes_of_row(site.k, element, round_up(site.n, kAlignedElements), sizeof(float));
}

// The whole rows that a matrix of some of their columns, from the first on, lies in.
Tensor whole_rows(const Tensor& columns) {
  return {columns.raw(), columns.dtype(), {columns.dim(0), columns.row_stride()}};
}

// Numbers of any type as rows of words, whose bits are copied by what copies float32.
Tensor as_words(const Tensor& numbers) {
  const auto words = static_cast<int64_t>(size_of(numbers.dtype()) / sizeof(float));
  return {numbers.raw(), DType::kFloat32, {numbers.dim(0), words}};
}

Tensor piece_of(const Tensor& vector, int64_t begin, int64_t count) {
  return vector.defined() ? vector.rows(begin, begin + count) : Tensor();
}

int64_t block_of(int64_t row) {
  return row / LoraRowOrder::kBlockRows * LoraRowOrder::kBlockRows;
}

}  // namespace

size_t GpuLoraCopies::slot_bytes(const LoraSites& sites, const GpuLoraLimits& limits) {
  size_t bytes = align_up(static_cast<size_t>(limits.copy_bytes), kCopyAlignment);
  for (const auto& [tensor, norm] : sites.norms()) {
    if (!norm.of_heads) continue;
    bytes += align_up(static_cast<size_t>(norm.size) * sizeof(float), kCopyAlignment);
  }
  return bytes;
}

size_t GpuLoraCopies::scratch_bytes(const LoraSites& sites, const GpuLoraLimits& limits) {
  const bool has_head_norms =
      std::ranges::any_of(sites.norms(), [](const auto& norm) { return norm.second.of_heads; });
  size_t most = 0;
  for (const auto& [name, site] : sites.all()) {
    // Only that of q, k and v is gathered for norms.
    const bool is_normed = has_head_norms && site.parts.size() == 3;
    if (limits.copy_bytes == 0 && !is_normed) continue;
    const int64_t rows =
        std::min(kMostCopiedRows, site.is_output ? limits.max_logits : limits.max_rows);
    const size_t row_bytes = bytes_of_row(site, size_of(limits.dtype));
    const size_t bytes = std::min(static_cast<size_t>(rows) * row_bytes, kMostCopyScratch);
    most = std::max({most, bytes, row_bytes});
  }
  return most;
}

size_t GpuLoraCopies::bytes(const LoraSites& sites, const GpuLoraLimits& limits) {
  return align_up(static_cast<size_t>(limits.max_loras) * slot_bytes(sites, limits),
                  kCopyAlignment) +
         align_up(scratch_bytes(sites, limits), kCopyAlignment);
}

GpuLoraCopies::Needs GpuLoraCopies::needs(const LoraSites& sites,
                                          std::span<const std::string> modules, DType dtype) {
  Needs needs;
  for (const std::string& module : modules) {
    const LoraSites::Found found = sites.find(module);
    if (found.site == nullptr) continue;
    if (!is_aligned(*found.site)) needs.misaligned = module;
    for_each_share(found, [&](const ParameterPart& part, const IndexRange& rows) {
      const auto numbers = static_cast<size_t>(rows.size() * part.columns.size());
      needs.bytes += static_cast<int64_t>(align_up(numbers * size_of(dtype), kCopyAlignment));
    });
  }
  return needs;
}

GpuLoraCopies::GpuLoraCopies(const LoraSites& sites, const GpuLoraLimits& limits,
                             const Device& device)
    : dtype_(limits.dtype),
      memory_(*device.memory),
      slot_bytes_(slot_bytes(sites, limits)),
      room_(static_cast<size_t>(limits.max_loras) * slot_bytes_, device),
      scratch_(Buffer(scratch_bytes(sites, limits), device)),
      slots_(static_cast<size_t>(limits.max_loras)) {}

ops::Weight GpuLoraCopies::pack(Slot& slot, const Tensor& source, ThreadPool& pool) const {
  constexpr int64_t kPieceNumbers = int64_t{1} << 20;
  Device device;
  device.type = DeviceType::kCuda;
  device.memory = slot.room.get();
  ops::Weight weight(dtype_, source.dim(0), source.dim(1), device);
  const int64_t rows = std::max<int64_t>(1, kPieceNumbers / source.dim(1));
  pool.parallel_for(ceil_div(source.dim(0), rows), [&](int64_t piece, int) {
    const int64_t begin = piece * rows;
    weight.pack_rows(begin, source.rows(begin, std::min(source.dim(0), begin + rows)));
  });
  return weight;
}

void GpuLoraCopies::store(int slot, const LoraSites& sites, const LoraWeights& weights,
                          ThreadPool& pool) {
  Slot& to = slots_[static_cast<size_t>(slot)];
  to = Slot();
  to.room = std::make_unique<SlotRoom>(room_.data() + static_cast<size_t>(slot) * slot_bytes_,
                                       slot_bytes_, memory_);
  for (const LoraLayer& layer : weights.layers) {
    const LoraSites::Found found = sites.find(layer.name);
    if (layer.copy.empty() || found.site == nullptr) continue;
    const void* const key = found.site->layer;
    for_each_share(found, [&](const ParameterPart& part, const IndexRange& rows) {
      const Tensor source = layer.copy.tensor()
                                .rows(rows.begin, rows.end)
                                .columns(part.columns.begin, part.columns.end);
      Matrix matrix = {
          .first_output = part.first_row, .first_id = rows.begin, .weight = pack(to, source, pool)};
      if (found.site->is_embedding) {
        to.embeddings.emplace(key, std::move(matrix));
      } else {
        to.layers[key].push_back(std::move(matrix));
      }
    });
  }
  for (const auto& [tensor, norm] : sites.norms()) {
    const auto trained = weights.norms.find(tensor);
    if (!norm.of_heads || trained == weights.norms.end()) continue;
    const std::span<const float> values = trained->second;
    std::byte* const data = to.room->take(values.size_bytes());
    to.room->upload(data, values.size_bytes(), [&](std::byte* from) {
      std::memcpy(from, values.data(), values.size_bytes());
    });
    to.head_norms.emplace(norm.layer, Tensor(data, DType::kFloat32, {norm.size}));
  }
}

const GpuLoraCopies::Slot* GpuLoraCopies::slot_of(const LoraRowGroup& group) const {
  return group.slot < 0 ? nullptr : &slots_[static_cast<size_t>(group.slot)];
}

template <typename Body>
void GpuLoraCopies::in_pieces(const LoraRowOrder& order, const LoraRowGroup& group,
                              size_t row_bytes, const Body& body) const {
  const auto room = static_cast<int64_t>(scratch_.capacity() / row_bytes);
  const int64_t most = std::clamp<int64_t>(room, 1, kMostCopiedRows);
  for (int64_t begin = 0; begin < group.count; begin += most) {
    const int64_t count = std::min(most, group.count - begin);
    auto* const rows = const_cast<int32_t*>(order.rows) + group.begin + begin;
    auto* const wide_rows = const_cast<int64_t*>(order.wide_rows) + group.begin + begin;
    const Arena::Scope scope(scratch_);
    body(GatheredRows{.rows = Tensor(rows, DType::kInt32, {count}),
                      .wide_rows = Tensor(wide_rows, DType::kInt64, {count})});
  }
}

void GpuLoraCopies::multiply(Stream& stream, std::span<const Matrix> matrices, const Tensor& in,
                             const Tensor& bias, const Tensor& out) {
  for (const Matrix& matrix : matrices) {
    const int64_t first = matrix.first_output;
    const int64_t count = matrix.weight.n();
    ops::linear(stream, in, matrix.weight, piece_of(bias, first, count),
                out.columns(first, first + count));
  }
}

void GpuLoraCopies::multiply(Stream& stream, const LoraRowOrder& order, const void* layer,
                             int64_t first_row, const Tensor& in, const Tensor& bias,
                             const Tensor& out) const {
  check(block_of(first_row) == first_row, "a part of a step begins with a block of rows");
  const int64_t num_rows = in.dim(0);
  for (const LoraRowGroup& group : order.groups) {
    const int64_t first = group.first_row - first_row;
    const Slot* const slot = slot_of(group);
    if (slot == nullptr || first < 0 || first >= num_rows) continue;
    const auto copies = slot->layers.find(layer);
    if (copies == slot->layers.end()) continue;
    const std::vector<Matrix>& matrices = copies->second;
    if (group.is_run) {
      multiply(stream, matrices, in.rows(first, first + group.count), bias,
               out.rows(first, first + group.count));
      continue;
    }
    const int64_t block = block_of(first);
    const int64_t block_end = std::min(num_rows, block + LoraRowOrder::kBlockRows);
    const Tensor from = in.rows(block, block_end);
    const Tensor to = whole_rows(out.rows(block, block_end));
    const size_t row_bytes =
        bytes_of_row(in.dim(1), size_of(in.dtype()), to.dim(1), size_of(out.dtype()));
    in_pieces(order, group, row_bytes, [&](const GatheredRows& piece) {
      const int64_t count = piece.rows.dim(0);
      const Tensor x = scratch_.allocate(in.dtype(), {count, in.dim(1)});
      const Tensor y = scratch_.allocate(out.dtype(), {count, to.dim(1)});
      ops::gather_rows(stream, from, piece.rows, x);
      ops::gather_rows(stream, to, piece.rows, y);
      multiply(stream, matrices, x, bias, y.columns(0, out.dim(1)));
      ops::scatter_rows(stream, y, piece.wide_rows, to);
    });
  }
}

void GpuLoraCopies::look_up(Stream& stream, const LoraRowOrder& order, const void* layer,
                            const Tensor& token_ids, const Tensor& out) const {
  const int64_t num_rows = out.dim(0);
  for (const LoraRowGroup& group : order.groups) {
    const Slot* const slot = slot_of(group);
    if (slot == nullptr) continue;
    const auto copy = slot->embeddings.find(layer);
    if (copy == slot->embeddings.end()) continue;
    const Matrix& matrix = copy->second;
    if (group.is_run) {
      const int64_t end = group.first_row + group.count;
      ops::embedding(stream, token_ids.rows(group.first_row, end), matrix.weight, matrix.first_id,
                     out.rows(group.first_row, end));
      continue;
    }
    const int64_t block = block_of(group.first_row);
    const int64_t block_end = std::min(num_rows, block + LoraRowOrder::kBlockRows);
    const size_t row_bytes = bytes_of_row(1, sizeof(int32_t), out.dim(1), size_of(out.dtype()));
    in_pieces(order, group, row_bytes, [&](const GatheredRows& piece) {
      const int64_t count = piece.rows.dim(0);
      const Tensor ids = scratch_.allocate(DType::kInt32, {count});
      const Tensor found = scratch_.allocate(out.dtype(), {count, out.dim(1)});
      ops::gather_rows(stream, as_words(token_ids.rows(block, block_end)), piece.rows,
                       as_words(ids));
      ops::embedding(stream, ids, matrix.weight, matrix.first_id, found);
      ops::scatter_rows(stream, found, piece.wide_rows, out.rows(block, block_end));
    });
  }
}

void GpuLoraCopies::norm_rope_cache(Stream& stream, const LoraRowOrder& order, const void* q_norm,
                                    const void* k_norm, const Tensor& qkv, int num_heads,
                                    const ops::QkNormRope& base, const ForwardBatch& batch,
                                    const KvCacheView& cache) const {
  const auto norms_of = [&](const LoraRowGroup& group) {
    ops::QkNormRope norms = base;
    const Slot* const slot = slot_of(group);
    if (slot == nullptr) return norms;
    if (const auto q = slot->head_norms.find(q_norm); q != slot->head_norms.end()) {
      norms.q_norm = q->second;
    }
    if (const auto k = slot->head_norms.find(k_norm); k != slot->head_norms.end()) {
      norms.k_norm = k->second;
    }
    return norms;
  };
  const bool any = std::ranges::any_of(order.groups, [&](const LoraRowGroup& group) {
    const ops::QkNormRope norms = norms_of(group);
    return norms.q_norm.raw() != base.q_norm.raw() || norms.k_norm.raw() != base.k_norm.raw();
  });
  if (!any) return ops::qk_norm_rope_cache(stream, qkv, num_heads, base, batch, cache);
  const auto run = [&](const LoraRowGroup& group, const Tensor& rows, const Tensor& positions,
                       const Tensor& slot_mapping) {
    ForwardBatch part = batch;
    part.num_tokens = rows.dim(0);
    part.positions = positions;
    part.slot_mapping = slot_mapping;
    ops::qk_norm_rope_cache(stream, rows, num_heads, norms_of(group), part, cache);
  };
  for (const LoraRowGroup& group : order.groups) {
    if (group.is_run) {
      const int64_t end = group.first_row + group.count;
      run(group, qkv.rows(group.first_row, end), batch.positions.rows(group.first_row, end),
          batch.slot_mapping.rows(group.first_row, end));
      continue;
    }
    const int64_t block = block_of(group.first_row);
    const int64_t block_end = std::min(batch.num_tokens, block + LoraRowOrder::kBlockRows);
    const Tensor all = qkv.rows(block, block_end);
    const size_t row_bytes = bytes_of_row(1, sizeof(int64_t), qkv.dim(1), size_of(qkv.dtype()));
    in_pieces(order, group, row_bytes, [&](const GatheredRows& piece) {
      const int64_t count = piece.rows.dim(0);
      const Tensor rows = scratch_.allocate(qkv.dtype(), {count, qkv.dim(1)});
      const Tensor positions = scratch_.allocate(DType::kInt32, {count});
      const Tensor slot_mapping = scratch_.allocate(DType::kInt64, {count});
      ops::gather_rows(stream, all, piece.rows, rows);
      ops::gather_rows(stream, as_words(batch.positions.rows(block, block_end)), piece.rows,
                       as_words(positions));
      ops::gather_rows(stream, as_words(batch.slot_mapping.rows(block, block_end)), piece.rows,
                       as_words(slot_mapping));
      run(group, rows, positions, slot_mapping);
      ops::scatter_rows(stream, rows, piece.wide_rows, all);
    });
  }
}

}  // namespace quire
