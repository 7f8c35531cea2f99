#include "layers/lora_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/lora.h"
#include "ops/norm.h"

namespace quire {
namespace {

// Rows that are computed together, where the scratch holds as many: enough for products that read
// the adapter's matrices seldom.
constexpr int64_t kMostRows = 256;
constexpr int64_t kScratchFloats = int64_t{4} << 20;

// Floats of scratch for a row: its input, the results of A and B, and the rounding up of the three.
int64_t floats_of_row(int64_t k, int64_t ranks, int64_t n) {
  return k + ranks + n + 3 * static_cast<int64_t>(kAlignment / sizeof(float));
}

Tensor as_ids(std::span<const int32_t> values) {
  auto* data = const_cast<int32_t*>(values.data());
  return {data, DType::kInt32, {static_cast<int64_t>(values.size())}};
}

int64_t widest_part(const LoraShare& share) {
  int64_t widest = 0;
  for (const LoraPart& part : share.parts) widest = std::max(widest, part.num_outputs);
  return widest;
}

Tensor piece_of(const Tensor& vector, const LoraPart& part) {
  if (!vector.defined()) return {};
  return vector.rows(part.first_output, part.first_output + part.num_outputs);
}

}  // namespace

LoraStep::LoraStep(std::vector<const LoraLayers*> adapters, Arena& scratch)
    : adapters_(std::move(adapters)), groups_(groups_of(adapters_)), scratch_(scratch) {}

size_t LoraStep::scratch_bytes(const LoraSites& sites, int64_t rank) {
  int64_t floats = kScratchFloats;
  for (const auto& [name, site] : sites.all()) {
    const int64_t ranks = rank * static_cast<int64_t>(site.parts.size());
    const int64_t k = site.is_embedding ? 1 : site.k;
    floats = std::max(floats, floats_of_row(k, ranks, site.n));
  }
  return static_cast<size_t>(floats) * sizeof(float);
}

std::vector<LoraStep::Group> LoraStep::groups_of(std::span<const LoraLayers* const> adapters) {
  std::vector<Group> groups;
  for (size_t row = 0; row < adapters.size(); ++row) {
    if (adapters[row] == nullptr) continue;
    auto group = std::ranges::find(groups, adapters[row], &Group::adapter);
    if (group == groups.end()) {
      groups.push_back({adapters[row], {}});
      group = groups.end() - 1;
    }
    group->rows.push_back(static_cast<int32_t>(row));
  }
  return groups;
}

template <typename Body>
void LoraStep::in_pieces(std::span<const int32_t> rows, int64_t width, const Body& body) const {
  const auto capacity = static_cast<int64_t>(scratch_.capacity() / sizeof(float));
  const auto most = static_cast<size_t>(std::clamp<int64_t>(capacity / width, 1, kMostRows));
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    const Arena::Scope scope(scratch_);
    body(rows.subspan(begin, std::min(most, rows.size() - begin)));
  }
}

Tensor LoraStep::gathered(Stream& stream, std::span<const int32_t> rows, const Tensor& in) const {
  const int64_t first = rows.front();
  const auto count = static_cast<int64_t>(rows.size());
  if (rows.back() - first + 1 == count) return in.rows(first, first + count);
  const Tensor out = scratch_.allocate(DType::kFloat32, {count, in.dim(1)});
  ops::gather_rows(stream, in, as_ids(rows), out);
  return out;
}

void LoraStep::multiply_copies(Stream& stream, const LoraShare& share,
                               std::span<const int32_t> rows, const Tensor& x, const Tensor& bias,
                               const Tensor& out) const {
  for (const LoraPart& part : share.parts) {
    if (!part.copy) continue;
    const Arena::Scope scope(scratch_);
    const Tensor product =
        scratch_.allocate(DType::kFloat32, {static_cast<int64_t>(rows.size()), part.num_outputs});
    ops::linear(stream, x, *part.copy, piece_of(bias, part), product);
    ops::scatter_rows(stream, product, rows,
                      out.columns(part.first_output, part.first_output + part.num_outputs));
  }
}

void LoraStep::add_parts(Stream& stream, const LoraShare& share, std::span<const int32_t> rows,
                         const Tensor& u, const Tensor& bias, const Tensor& out) const {
  for (const LoraPart& part : share.parts) {
    const Arena::Scope scope(scratch_);
    ops::LoraSum sum = {.delta = {},
                        .scale = part.scale,
                        .factor = part.factor,
                        .bias = piece_of(bias, part),
                        .added = part.added_bias};
    if (part.rank > 0) {
      sum.delta =
          scratch_.allocate(DType::kFloat32, {static_cast<int64_t>(rows.size()), part.num_outputs});
      ops::linear(stream, u.columns(part.first_rank, part.first_rank + part.rank), part.b, Tensor(),
                  sum.delta);
    }
    ops::add_lora(stream, rows, sum,
                  out.columns(part.first_output, part.first_output + part.num_outputs));
  }
}

void LoraStep::add_share(Stream& stream, const LoraShare& share, std::span<const int32_t> rows,
                         const Tensor& in, const Tensor& bias, const Tensor& out) const {
  const int64_t ranks = share.a ? share.a->n() : 0;
  in_pieces(rows, floats_of_row(in.dim(1), ranks, widest_part(share)),
            [&](std::span<const int32_t> piece) {
              Tensor u;
              if (share.a || share.has_copies()) {
                const Tensor x = gathered(stream, piece, in);
                multiply_copies(stream, share, piece, x, bias, out);
                if (share.a) {
                  u = scratch_.allocate(DType::kFloat32, {x.dim(0), ranks});
                  ops::linear(stream, x, *share.a, Tensor(), u);
                }
              }
              add_parts(stream, share, piece, u, bias, out);
            });
}

void LoraStep::add(Stream& stream, const void* layer, int64_t first_row, const Tensor& in,
                   const Tensor& bias, const Tensor& out) const {
  const int64_t last_row = first_row + in.dim(0);
  for (const Group& group : groups_) {
    const LoraShare* share = group.adapter->find(layer);
    if (share == nullptr) continue;
    std::vector<int32_t> rows;
    for (const int32_t row : group.rows) {
      if (row >= first_row && row < last_row) rows.push_back(row - static_cast<int32_t>(first_row));
    }
    if (!rows.empty()) add_share(stream, *share, rows, in, bias, out);
  }
}

void LoraStep::add_to_logits(Stream& stream, const void* layer, std::span<const int32_t> rows,
                             const Tensor& in, const Tensor& out) const {
  std::vector<const LoraLayers*> adapters;
  for (const int32_t row : rows) adapters.push_back(adapters_[static_cast<size_t>(row)]);
  for (const Group& group : groups_of(adapters)) {
    const LoraShare* share = group.adapter->find(layer);
    if (share != nullptr) add_share(stream, *share, group.rows, in, Tensor(), out);
  }
}

void LoraStep::add_to_embedding(Stream& stream, const void* layer, const Tensor& token_ids,
                                const Tensor& out) const {
  for (const Group& group : groups_) {
    const LoraShare* share = group.adapter->find_embedding(layer);
    if (share == nullptr) continue;
    const int64_t rank = share->a ? share->a->k() : 0;
    in_pieces(group.rows, floats_of_row(1, rank, out.dim(1)), [&](std::span<const int32_t> piece) {
      const auto count = static_cast<int64_t>(piece.size());
      const Tensor ids = scratch_.allocate(DType::kInt32, {count});
      for (int64_t i = 0; i < count; ++i) {
        ids.data<int32_t>()[i] = token_ids.data<int32_t>()[piece[static_cast<size_t>(i)]];
      }
      const LoraPart& part = share->parts.front();
      if (part.copy) {
        const Arena::Scope scope(scratch_);
        const Tensor rows = scratch_.allocate(DType::kFloat32, {count, out.dim(1)});
        ops::embedding(stream, ids, *part.copy, 0, rows);
        ops::scatter_rows(stream, rows, piece, out);
      }
      if (!share->a) return;
      const Tensor u = scratch_.allocate(DType::kFloat32, {count, rank});
      ops::embedding(stream, ids, *share->a, 0, u);
      add_parts(stream, *share, piece, u, Tensor(), out);
    });
  }
}

void LoraStep::replace_norm(Stream& stream, const void* layer, float eps, const Tensor& in,
                            const Tensor& out) const {
  for (const Group& group : groups_) {
    const Tensor weight = group.adapter->find_norm(layer);
    if (!weight.defined()) continue;
    in_pieces(group.rows, floats_of_row(in.dim(1), 0, in.dim(1)),
              [&](std::span<const int32_t> piece) {
                const Tensor x = gathered(stream, piece, in);
                const Tensor normed = scratch_.allocate(DType::kFloat32, {x.dim(0), x.dim(1)});
                ops::rms_norm(stream, x, weight, eps, normed);
                ops::scatter_rows(stream, normed, piece, out);
              });
  }
}

std::vector<const float*> LoraStep::norms_of_rows(const void* layer, const Tensor& base) const {
  std::vector<const float*> norms;
  for (const Group& group : groups_) {
    const Tensor weight = group.adapter->find_norm(layer);
    if (!weight.defined()) continue;
    norms.resize(adapters_.size(), base.data<float>());
    for (const int32_t row : group.rows) norms[static_cast<size_t>(row)] = weight.data<float>();
  }
  return norms;
}

}  // namespace quire
