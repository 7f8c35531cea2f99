#include "ops/cpu/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/ceil_div.h"
#include "core/buffer.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/kv_layout.h"
#include "ops/cpu/kv_store.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/tasks.h"

namespace quire::ops {
namespace {

// What attention of some rows over some keys came to, as AttentionTask says.
struct PartialAttention {
  float* out = nullptr;
  int64_t out_stride = 0;  // from a token to the next; a head is head_dim further on
  float* maxima = nullptr;
  float* denominators = nullptr;
};

// Adds what a row's next part came to.
void merge_row(const float* part, float part_maximum, float part_denominator, int64_t head_dim,
               float* out, float& maximum, float& denominator) {
  if (part_denominator == 0) return;  // it sees none of the part
  if (denominator == 0) {
    std::copy_n(part, head_dim, out);
    maximum = part_maximum;
    denominator = part_denominator;
    return;
  }
  const float largest = std::max(maximum, part_maximum);
  const float factor = std::exp(maximum - largest);
  const float part_factor = std::exp(part_maximum - largest);
  for (int64_t d = 0; d < head_dim; ++d) out[d] = out[d] * factor + part[d] * part_factor;
  denominator = denominator * factor + part_denominator * part_factor;
  maximum = largest;
}

// A query's numbers as integers of 15 bits in the order of AttentionTask::q_integers. Returns their
// scale; that of infinities and NaN is NaN.
float round_query(const float* q, int head_dim, int16_t* integers) {
  const float largest = largest_magnitude(q, head_dim);
  if (!(largest >= kLeastToRound && largest <= std::numeric_limits<float>::max())) {
    std::fill_n(integers, head_dim, int16_t{0});
    return largest < kLeastToRound ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  constexpr float kLimit = kQueryLimit;
  const float inverse = kLimit / largest;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
  constexpr float kRounder = 12582912.0f;
  constexpr int kOrder[] = {0, 2, 1, 3};
  for (int d = 0; d < head_dim; d += 4) {
    for (int i = 0; i < 4; ++i) {
      integers[d + i] = static_cast<int16_t>(q[d + kOrder[i]] * inverse + kRounder - kRounder);
    }
  }
  return largest / kLimit;
}

// One thread's scratch, cut up.
class TaskScratch {
 public:
  TaskScratch(std::byte* memory, int rows, int head_dim) : next_(memory) {
    const int64_t elements = int64_t{rows} * head_dim;
    kernel_ = take<std::byte>(int64_t{rows} * kAttentionRowBytes);
    part_.out = take<float>(elements);
    part_.maxima = take<float>(rows);
    part_.denominators = take<float>(rows);
    maxima_ = take<float>(rows);
    denominators_ = take<float>(rows);
    q_scales_ = take<float>(rows);
    q_integers_ = take<int16_t>(elements);
  }

  void* kernel() const { return kernel_; }
  // For a part's result; out_stride is for the caller to say.
  PartialAttention part() const { return part_; }
  // For the whole's.
  float* maxima() const { return maxima_; }
  float* denominators() const { return denominators_; }
  float* q_scales() const { return q_scales_; }
  int16_t* q_integers() const { return q_integers_; }

 private:
  template <typename T>
  T* take(int64_t count) {
    T* taken = reinterpret_cast<T*>(next_);
    next_ += align_up(static_cast<size_t>(count) * sizeof(T));
    return taken;
  }

  std::byte* next_;
  std::byte* kernel_;
  PartialAttention part_;
  float* maxima_;
  float* denominators_;
  float* q_scales_;
  int16_t* q_integers_;
};

class PagedAttention {
 public:
  PagedAttention(Stream& stream, const Tensor& q, int num_heads, float scale, int64_t window,
                 const ForwardBatch& batch, const KvCacheView& cache, const Tensor& out)
      : stream_(stream),
        q_(q),
        out_(out),
        batch_(batch),
        cache_(cache),
        scale_(scale),
        window_(window),
        group_(num_heads / cache.num_kv_heads),
        tile_tokens_(std::max(1, kAttentionTaskRows / group_)),
        kernel_(kernel_of(kernels_for(stream.isa()), cache.dtype)) {
    plan();
  }

  void run() {
    const int max_rows = tile_tokens_ * group_;
    const size_t task_bytes = align_up(attention_scratch_bytes(max_rows, cache_.head_dim));
    const size_t threads_bytes = task_bytes * static_cast<size_t>(stream_.pool().size());
    std::byte* scratch = stream_.scratch(threads_bytes + static_cast<size_t>(part_bytes_));
    parts_ = reinterpret_cast<float*>(scratch + threads_bytes);
    stream_.pool().parallel_for(first_task_.back(), [&](int64_t number, int thread) {
      const TaskScratch mine(scratch + static_cast<size_t>(thread) * task_bytes, max_rows,
                             cache_.head_dim);
      const Item item = item_of(number);
      if (item.part < 0) {
        attend_whole(item, mine);
      } else {
        attend_part(item, mine);
      }
    });
    for (int64_t seq = 0; seq < batch_.num_seqs; ++seq) {
      if (splits_[index(seq)].is_split) merge_parts(seq);
    }
  }

 private:
  // Parts [first, past) of the context that a sequence's queries see.
  struct Splits {
    int64_t first = 0;
    int64_t past = 0;
    bool is_split = false;     // each a task of its own
    int64_t memory_begin = 0;  // of the results of these, in floats
    int64_t count() const { return past - first; }
  };

  // A task.
  struct Item {
    int64_t seq;
    int64_t kv_head;
    int64_t first_token;  // within the sequence's queries
    int64_t num_tokens;
    int64_t part;  // of the context; below 0: all
  };

  using Kernel = void (*)(const AttentionTask&);

  static Kernel kernel_of(const Kernels& kernels, DType dtype) {
    switch (dtype) {
      case DType::kBFloat16:
        return kernels.attention_bf16;
      case DType::kFloat8E4M3:
        return kernels.attention_e4m3;
      case DType::kFloat8E5M2:
        return kernels.attention_e5m2;
      case DType::kInt8:
        return kernels.attention_i8;
      default:
        return kernels.attention_f32;
    }
  }

  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  int64_t length(int64_t seq) const {
    const auto* starts = batch_.query_start.data<int32_t>();
    return starts[seq + 1] - starts[seq];
  }
  int64_t context(int64_t seq) const { return batch_.context_lens.data<int32_t>()[seq]; }
  int64_t tiles(int64_t seq) const { return ceil_div<int64_t>(length(seq), tile_tokens_); }

  Splits splits_of(int64_t first_position, int64_t past_position) const {
    const int64_t seen = window_ > 0 ? std::max<int64_t>(0, first_position - window_ + 1) : 0;
    return {seen / kAttentionSplit, ceil_div(past_position, kAttentionSplit)};
  }

  // A sequence is split where its parts are more than a task's part of the work, and the results of
  // the parts have room. Sequences of several query tiles have tasks enough.
  void plan() {
    const auto num_seqs = static_cast<size_t>(batch_.num_seqs);
    splits_.reserve(num_seqs);
    first_task_.reserve(num_seqs + 1);
    first_task_.push_back(0);
    int64_t work = 0;  // in parts
    for (int64_t seq = 0; seq < batch_.num_seqs; ++seq) {
      splits_.push_back(splits_of(context(seq) - length(seq), context(seq)));
      work += tiles(seq) * cache_.num_kv_heads * splits_.back().count();
    }
    const int64_t most = work / (kAttentionTasksPerThread * stream_.pool().size());
    for (int64_t seq = 0; seq < batch_.num_seqs; ++seq) {
      Splits& splits = splits_[index(seq)];
      int64_t tasks = tiles(seq) * cache_.num_kv_heads;
      const int64_t bytes =
          length(seq) * group_ * tasks * splits.count() * part_row_bytes(cache_.head_dim);
      if (tiles(seq) == 1 && splits.count() > std::max<int64_t>(1, most) &&
          part_bytes_ + bytes <= kMaxPartBytes && stream_.pool().size() > 1) {
        splits.is_split = true;
        splits.memory_begin = part_bytes_ / int64_t{sizeof(float)};
        part_bytes_ += bytes;
        tasks *= splits.count();
      }
      first_task_.push_back(first_task_.back() + tasks);
    }
  }

  Item item_of(int64_t task) const {
    const auto next = std::upper_bound(first_task_.begin(), first_task_.end(), task);
    const int64_t seq = next - first_task_.begin() - 1;
    const Splits& splits = splits_[index(seq)];
    const int64_t in_seq = task - first_task_[index(seq)];
    const int64_t kv_head = in_seq % cache_.num_kv_heads;
    const int64_t outer = in_seq / cache_.num_kv_heads;
    if (splits.is_split) return {seq, kv_head, 0, length(seq), splits.first + outer};
    // The last tile of a sequence sees the most keys: it goes first, so that no thread is left with
    // it.
    const int64_t first_token = (tiles(seq) - 1 - outer) * tile_tokens_;
    return {seq, kv_head, first_token, std::min<int64_t>(tile_tokens_, length(seq) - first_token),
            -1};
  }

  // All of the task but the part and where its results go.
  AttentionTask task_of(const Item& item, const TaskScratch& scratch) const {
    const int64_t row = batch_.query_start.data<int32_t>()[item.seq] + item.first_token;
    const int64_t column = item.kv_head * group_ * cache_.head_dim;
    const int64_t head_offset = kv_head_offset(cache_, item.kv_head);
    const float* q = q_.row<float>(row) + column;
    if (cache_.dtype == DType::kInt8) {
      for (int64_t i = 0; i < item.num_tokens * group_; ++i) {
        scratch.q_scales()[i] =
            round_query(q + i / group_ * q_.row_stride() + i % group_ * cache_.head_dim,
                        cache_.head_dim, scratch.q_integers() + i * cache_.head_dim);
      }
    }
    return {.q = q,
            .q_stride = q_.row_stride(),
            .out = out_.row<float>(row) + column,
            .out_stride = out_.row_stride(),
            .tokens = static_cast<int>(item.num_tokens),
            .heads = group_,
            .first_position = context(item.seq) - length(item.seq) + item.first_token,
            .window = window_,
            .begin = 0,
            .end = 0,
            .scale = scale_ * scale_of(cache_.key_scales, item.kv_head),
            .head_dim = cache_.head_dim,
            .block_table = batch_.block_tables.row<int32_t>(item.seq),
            .block_size = cache_.block_size,
            .keys = static_cast<const std::byte*>(cache_.keys) + head_offset,
            .values = static_cast<const std::byte*>(cache_.values) + head_offset,
            .block_bytes = static_cast<int64_t>(cache_.block_bytes()),
            .q_integers = scratch.q_integers(),
            .q_scales = scratch.q_scales(),
            .maxima = scratch.maxima(),
            .denominators = scratch.denominators(),
            .scratch = scratch.kernel()};
  }

  void run_part(AttentionTask task, int64_t part, const PartialAttention& result) const {
    task.begin = part * kAttentionSplit;
    task.end = task.begin + kAttentionSplit;
    task.out = result.out;
    task.out_stride = result.out_stride;
    task.maxima = result.maxima;
    task.denominators = result.denominators;
    kernel_(task);
  }

  void attend_whole(const Item& item, const TaskScratch& scratch) const {
    const AttentionTask task = task_of(item, scratch);
    const Splits splits = splits_of(task.first_position, task.first_position + item.num_tokens);
    const PartialAttention whole = {task.out, task.out_stride, task.maxima, task.denominators};
    PartialAttention part = scratch.part();
    part.out_stride = int64_t{group_} * cache_.head_dim;
    for (int64_t number = splits.first; number < splits.past; ++number) {
      const bool is_first = number == splits.first;
      run_part(task, number, is_first ? whole : part);
      if (!is_first) merge(part, item.num_tokens, whole);
    }
    for (int64_t row = 0; row < item.num_tokens * group_; ++row) {
      finish(out_of(whole, row), whole.denominators[row], item.kv_head);
    }
  }

  float* out_of(const PartialAttention& result, int64_t row) const {
    return result.out + row / group_ * result.out_stride + row % group_ * cache_.head_dim;
  }

  void merge(const PartialAttention& part, int64_t num_tokens,
             const PartialAttention& whole) const {
    for (int64_t row = 0; row < num_tokens * group_; ++row) {
      merge_row(out_of(part, row), part.maxima[row], part.denominators[row], cache_.head_dim,
                out_of(whole, row), whole.maxima[row], whole.denominators[row]);
    }
  }

  static float scale_of(const float* scales, int64_t kv_head) {
    return scales == nullptr ? 1.0f : scales[kv_head];
  }

  void finish(float* out, float denominator, int64_t kv_head) const {
    for (int64_t d = 0; d < cache_.head_dim; ++d) out[d] /= denominator;
    if (cache_.value_scales == nullptr) return;
    for (int64_t d = 0; d < cache_.head_dim; ++d) out[d] *= cache_.value_scales[kv_head];
  }

  // The results of a KV head's queries over a part of a split sequence.
  PartialAttention result_of(int64_t seq, int64_t kv_head, int64_t part) const {
    const Splits& splits = splits_[index(seq)];
    const int64_t rows = length(seq) * group_;
    const int64_t number = kv_head * splits.count() + part - splits.first;
    float* out = parts_ + splits.memory_begin + number * rows * (cache_.head_dim + 2);
    float* maxima = out + rows * cache_.head_dim;
    return {out, int64_t{group_} * cache_.head_dim, maxima, maxima + rows};
  }

  void attend_part(const Item& item, const TaskScratch& scratch) const {
    run_part(task_of(item, scratch), item.part, result_of(item.seq, item.kv_head, item.part));
  }

  void merge_parts(int64_t seq) const {
    const Splits& splits = splits_[index(seq)];
    const int64_t rows = length(seq) * group_;
    const int64_t first_row = batch_.query_start.data<int32_t>()[seq];
    for_each_row(stream_, rows * cache_.num_kv_heads, splits.count() * cache_.head_dim,
                 [&](int64_t number) {
                   const int64_t kv_head = number / rows;
                   const int64_t row = number % rows;
                   float* out = out_.row<float>(first_row + row / group_) +
                                (kv_head * group_ + row % group_) * cache_.head_dim;
                   float maximum = 0;
                   float denominator = 0;
                   for (int64_t part = splits.first; part < splits.past; ++part) {
                     const PartialAttention result = result_of(seq, kv_head, part);
                     merge_row(out_of(result, row), result.maxima[row], result.denominators[row],
                               cache_.head_dim, out, maximum, denominator);
                   }
                   finish(out, denominator, kv_head);
                 });
  }

  Stream& stream_;
  const Tensor& q_;
  const Tensor& out_;
  const ForwardBatch& batch_;
  const KvCacheView& cache_;
  float scale_;
  int64_t window_;
  int group_;  // heads that share a KV head
  int tile_tokens_;
  Kernel kernel_;
  std::vector<Splits> splits_;       // of each sequence
  std::vector<int64_t> first_task_;  // of each sequence, and the number of tasks
  int64_t part_bytes_ = 0;
  float* parts_ = nullptr;
};

}  // namespace

void paged_attention_on_cpu(Stream& stream, const Tensor& q, int num_heads, float scale,
                            int64_t sliding_window, const ForwardBatch& batch,
                            const KvCacheView& cache, const Tensor& out) {
  PagedAttention(stream, q, num_heads, scale, sliding_window, batch, cache, out).run();
}

}  // namespace quire::ops
