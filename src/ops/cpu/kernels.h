#pragma once
// The inner loops of the CPU ops, once for each instruction set.
//
// x.cc checks an op's arguments, cuts it into tasks, and calls these; x_cpu.cc, x_avx2.cc,
// x_avxvnni.cc, x_avx512vnni.cc, x_avx512.cc and x_amx.cc hold them. This header is all that those
// but the first may include besides the compiler's intrinsics: an inline function of a shared
// header compiled there with AVX-512 could be the copy that the linker keeps for everybody, and
// would crash on a CPU without it. So: plain structs and pointers.
//
// "Steps": packed weights, keys and values share one idea. A step is 4 bytes for each of 16 or 64
// lanes side by side (output features, tokens, elements of a head): one float32, or two bfloat16
// that belong to neighbouring indices of the summed dimension; of float8 weights it is one byte a
// lane. A sum over K is a chain of steps in order, one chain a lane, so a result does not depend on
// how many rows are computed at once.
// Thread safety: functions touch nothing but their arguments.
#include <cstdint>

namespace quire::ops {

// Lanes of a panel of a packed weight: four AVX-512 registers, which one row keeps busy (4
// independent chains cover a multiply-add's latency of 4 cycles at one a cycle) and which arrive as
// one stream.
inline constexpr int kPanelLanes = 64;
// Rows that one pass of the inner loop computes: 6 x 4 accumulators, 4 weights and a broadcast row
// are 29 of AVX-512's 32 registers.
inline constexpr int kTileRows = 6;
// Tokens of a key tile, and of one step of the online softmax.
inline constexpr int kKeyLanes = 16;
inline constexpr int kAttentionTile = 64;
// The largest integer of a query that meets keys of int8: 127 * 16383 * 1024 (kMaxNarrowHeadDim)
// is below 2^31, and queries lose next to nothing by 15 bits.
inline constexpr int kQueryLimit = 16383;

// The same with AMX: two of its tiles of rows, which meet two of weights in four of sums. A tile's
// depth is 16 steps.
inline constexpr int kAmxTileRows = 32;
inline constexpr int kAmxTileSteps = 16;
// Of products with integer weights, whose sums leave the tiles after each group.
inline constexpr int kAmxGroupRows = 16;

// A block of a matrix product: `rows` rows by the 64 lanes of one panel by `steps` steps.
struct LinearTile {
  const void* weights;      // the panel's first step; 64 lanes a step
  const void* activations;  // packed by pack_f32 or pack_bf16, from the same step on
  int64_t steps;
  int rows;  // 1 to kTileRows; of linear_bf16 to Kernels::bf16_tile_rows
  int cols;  // lanes that exist in `out`, 1 to 64
  float* out;
  int64_t out_stride;
  bool accumulate;      // start from `out` instead of zero
  const float* bias;    // `cols` values added last, or null
  const float* scales;  // of linear_f8: `cols` factors of the sums, before the bias, or null
  // What is read soon, perhaps nothing: the kernel may ask for it in passing.
  const void* next;
  int64_t next_bytes;
};

// Rows of activations to round to int8 for a product with integer weights.
struct Int8Rows {
  const float* in;  // row r is at in + r * stride
  int64_t stride;
  const int32_t* permutation;  // input i of a row is its value permutation[i]; null: i
  int rows;                    // 1 to kTileRows; of pack_i8_tiles to kAmxGroupRows
  int64_t k;
  int group_size;  // inputs that share a scale: the largest magnitude of them / 127
  int excess;      // what the weights' bytes are more than their integers
  void* out;       // groups x (kInt8GroupHeader + group_size) x rows
};
// Of a group of one packed row: the sum of its integers times -excess (int32, what a chain of
// products with the weights' bytes starts from), the scale (float32), the scale times the sum
// (float32), and the integers. Those of a tile's rows lie side by side, the integers in steps:
// [starts][scales][sums][group_size / 4][rows][4]. Of pack_i8_tiles they are always kAmxGroupRows,
// with rows of zeros behind those that exist, and the integers are in tiles of up to 64 a row:
// [starts][scales][sums][ceil(group_size / 64)][rows][min(group_size, 64)].
inline constexpr int64_t kInt8GroupHeader = 12;

// A block of a product with integer weights (ops/cpu/group_panels.h): `rows` rows by the 64 lanes
// of one panel by `groups` groups. The sum of a row and lane is a chain over the groups, in order:
//   sum = fma(float(sum of the group's integer products), weight scale * input scale, sum)
//   sum = fma(input scale * sum of the input integers, offset, sum)     where there are offsets
struct GroupTile {
  const void* weights;      // the first group
  const void* activations;  // packed by pack_i8, from the same group on
  int64_t groups;
  int group_size;
  bool has_offsets;
  int scale_bytes;  // of a scale or an offset: 4 float32, 2 bfloat16, 1 int8
  // What int8 scales and offsets are multiplied by, of each 2^block_shift groups of the panel:
  // scales[64], offsets[64] (with has_offsets).
  const float* scale_blocks;
  int block_shift;
  int64_t first_group;  // which of the panel's groups that is
  int rows;             // as Int8Rows'
  int cols;             // lanes that exist in `out`, 1 to 64
  float* out;
  int64_t out_stride;
  bool accumulate;    // start from `out` instead of zero
  const float* bias;  // `cols` values added last, or null
  // As LinearTile's.
  const void* next;
  int64_t next_bytes;
};

// Rows of words of 4 bytes to put side by side: the step of packing a weight that handles every
// byte. Word w of row r goes to lane r of step w % group_words of group w / group_words.
struct WordRows {
  const void* in;  // row r is at in + r * row_bytes
  int64_t row_bytes;
  int rows;  // 1 to kPanelLanes
  int64_t words;
  int64_t group_words;  // steps of a group
  int64_t group_bytes;  // from a group's first step to the next group's
  uint32_t flip;        // these bits are inverted, last
  // A word has 8 numbers of 4 bits, the first lowest: the first 4 go to the low halves of its bytes
  // and the others to the high halves.
  bool orders_halves;
  void* out;  // the first row's lane of the first step
  // What is read next, perhaps nothing: the kernel may ask for it in passing. Where there is
  // nothing it asks for what is ahead in the rows.
  const void* next;
  int64_t next_bytes;
};

// How values of a group of a weight become integers: value * inverse + shift, rounded to nearest
// even and clipped to [low, high].
struct GroupRounding {
  float inverse;
  float shift;
  float low;
  float high;
};
// Of a group's values.
struct GroupSums {
  float low;
  float high;
  float sum;
  float squares;
};
// Of the integers that values are rounded to: their sum, that of their squares, and that of their
// products with the values.
struct GroupFit {
  float integers;
  float squares;
  float products;
};

// What a KV cache holds (ops/cpu/kv_layout.h): float32, bfloat16, float8, or int8 with scales.
enum class KvFormat { kF32, kBf16, kF8E4M3, kF8E5M2, kI8 };
constexpr bool is_float8(KvFormat format) {
  return format == KvFormat::kF8E4M3 || format == KvFormat::kF8E5M2;
}

// One query tile of one KV head of one sequence over a part of the keys. Attention of the part is
//   maximum = the largest score, denominator = sum of exp(score - maximum),
//   out = sum of exp(score - maximum) * value
// for each row; of a row that sees none of the keys -infinity, 0 and 0. Rows are numbered
// token * heads + head.
struct AttentionTask {
  // Row (token, head) is at q + token * q_stride + head * head_dim; `out` likewise.
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  int tokens;
  int heads;               // query heads that share the KV head
  int64_t first_position;  // of token 0; token t is at first_position + t
  int64_t window;          // sliding window, 0: none
  // The keys' positions are [begin, end), multiples of kAttentionTile; `end` may lie behind them.
  int64_t begin;
  int64_t end;
  float scale;
  int head_dim;
  const int32_t* block_table;
  int block_size;
  // The KV head's part of block 0, and the bytes from a block to the next.
  const void* keys;
  const void* values;
  int64_t block_bytes;
  // Of an int8 cache: the rows as integers, [rows][head_dim], of each four in the order 0, 2, 1, 3,
  // so that a register's even bytes meet a pair and its odd bytes the next; and their scales.
  const int16_t* q_integers;
  const float* q_scales;
  float* maxima;        // [rows]
  float* denominators;  // [rows]
  void* scratch;        // kAttentionRowBytes for each row, aligned to 64
};
inline constexpr int kAttentionRowBytes = 48;

// The per-head part of qk_norm_rope_cache, in place.
struct HeadTask {
  float* x;  // [head_dim]
  int head_dim;
  const float* norm;  // [head_dim] or null
  float eps;
  const float* cos_sin;  // [rotary_dim], the row of the token's position
  int rotary_dim;
};

struct Kernels {
  // Whether bfloat16 weights want activations from pack_bf16.
  bool multiplies_bf16;
  // How many rows linear_bf16 takes at most. Packed rows are padded to a multiple of
  // bf16_tile_steps steps.
  int bf16_tile_rows;
  int bf16_tile_steps;
  // rows x k values at in + row * stride, to [k][rows]; k is padded with a zero to an even number.
  void (*pack_f32)(const float* in, int64_t stride, int rows, int64_t k, float* out);
  // The same rounded to bfloat16, as pairs, of which bf16_tile_steps lie side by side:
  // [k / 2 / bf16_tile_steps][rows][bf16_tile_steps][2], padded with zeros.
  void (*pack_bf16)(const float* in, int64_t stride, int rows, int64_t k, uint16_t* out);
  void (*linear_f32)(const LinearTile& tile);
  void (*linear_bf16)(const LinearTile& tile);
  // Weights of float8 e4m3, activations of pack_f32.
  void (*linear_f8)(const LinearTile& tile);
  // Infinities and NaN make the scale of their group NaN and its integers 0.
  void (*pack_i8)(const Int8Rows& rows);
  // Weights of int8; of int4; and of int4 in int8's layout, a byte each, as unpack_i4 makes them.
  // The same bits whichever computes them, with every instruction set.
  void (*linear_i8)(const GroupTile& tile);
  void (*linear_i4)(const GroupTile& tile);
  void (*linear_unpacked_i4)(const GroupTile& tile);
  // pack_i8 and linear_i8 of up to kAmxGroupRows rows, in AMX's tiles; null without AMX.
  void (*pack_i8_tiles)(const Int8Rows& rows);
  void (*linear_i8_tiles)(const GroupTile& tile);
  // `bytes` of a group's data, two integers a byte, to twice as many bytes.
  void (*unpack_i4)(const void* data, int64_t bytes, void* out);
  // Of `count` values, a multiple of 8. The same bits with every instruction set.
  void (*sum_group)(const float* values, int count, GroupSums* sums);
  void (*fit_group)(const float* values, int count, const GroupRounding& rounding, GroupFit* fit);
  void (*round_group)(const float* values, int count, const GroupRounding& rounding, int8_t* data);
  // residual null: out = norm(x); else residual += x, out = norm(residual).
  void (*rms_norm)(const float* x, float* residual, const float* weight, float eps, int64_t n,
                   float* out);
  void (*silu_and_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*norm_rope)(const HeadTask& head);
  void (*attention_f32)(const AttentionTask& task);
  void (*attention_bf16)(const AttentionTask& task);
  void (*attention_e4m3)(const AttentionTask& task);
  void (*attention_e5m2)(const AttentionTask& task);
  void (*attention_i8)(const AttentionTask& task);
  // Pointers may have any alignment.
  void (*interleave)(const WordRows& rows);
  // `count` values, a multiple of 8, as float8 e4m3: to nearest even, at most 448 (Float8E4M3).
  void (*round_f8)(const float* values, int count, uint8_t* out);
  // The same as float8 e5m2: at most 57344 (Float8E5M2).
  void (*round_e5m2)(const float* values, int count, uint8_t* out);
  // As ops/cpu/vector_loops.h has them.
  float (*dot)(const float* a, const float* b, int64_t count);
  void (*add_scaled)(float factor, const float* from, int64_t count, float* to);
};

// Each namespace is one instruction set.
#define QUIRE_DECLARE_KERNELS(isa)                                                          \
  namespace isa {                                                                           \
  void pack_f32(const float* in, int64_t stride, int rows, int64_t k, float* out);          \
  void pack_bf16(const float* in, int64_t stride, int rows, int64_t k, uint16_t* out);      \
  void linear_f32(const LinearTile& tile);                                                  \
  void linear_bf16(const LinearTile& tile);                                                 \
  void linear_f8(const LinearTile& tile);                                                   \
  void rms_norm(const float* x, float* residual, const float* weight, float eps, int64_t n, \
                float* out);                                                                \
  void silu_and_mul(const float* gate, const float* up, int64_t n, float* out);             \
  void norm_rope(const HeadTask& head);                                                     \
  }
QUIRE_DECLARE_KERNELS(scalar)
QUIRE_DECLARE_KERNELS(avx2)
QUIRE_DECLARE_KERNELS(avx512)
#undef QUIRE_DECLARE_KERNELS
#define QUIRE_DECLARE_INTEGER_KERNELS(isa)                    \
  namespace isa {                                             \
  void pack_i8(const Int8Rows& rows);                         \
  void linear_i8(const GroupTile& tile);                      \
  void linear_i4(const GroupTile& tile);                      \
  void linear_unpacked_i4(const GroupTile& tile);             \
  void unpack_i4(const void* data, int64_t bytes, void* out); \
  }
QUIRE_DECLARE_INTEGER_KERNELS(scalar)
QUIRE_DECLARE_INTEGER_KERNELS(avx2)
QUIRE_DECLARE_INTEGER_KERNELS(avx512vnni)
#undef QUIRE_DECLARE_INTEGER_KERNELS
#define QUIRE_DECLARE_ATTENTION_KERNELS(isa)      \
  namespace isa {                                 \
  void attention_f32(const AttentionTask& task);  \
  void attention_bf16(const AttentionTask& task); \
  void attention_e4m3(const AttentionTask& task); \
  void attention_e5m2(const AttentionTask& task); \
  void attention_i8(const AttentionTask& task);   \
  }
QUIRE_DECLARE_ATTENTION_KERNELS(scalar)
QUIRE_DECLARE_ATTENTION_KERNELS(avx2)
QUIRE_DECLARE_ATTENTION_KERNELS(avx512vnni)
#undef QUIRE_DECLARE_ATTENTION_KERNELS
#define QUIRE_DECLARE_ROUNDING_KERNELS(isa)                                                      \
  namespace isa {                                                                                \
  void sum_group(const float* values, int count, GroupSums* sums);                               \
  void fit_group(const float* values, int count, const GroupRounding& rounding, GroupFit* fit);  \
  void round_group(const float* values, int count, const GroupRounding& rounding, int8_t* data); \
  void round_f8(const float* values, int count, uint8_t* out);                                   \
  void round_e5m2(const float* values, int count, uint8_t* out);                                 \
  }
QUIRE_DECLARE_ROUNDING_KERNELS(scalar)
QUIRE_DECLARE_ROUNDING_KERNELS(avx2)
#undef QUIRE_DECLARE_ROUNDING_KERNELS
#define QUIRE_DECLARE_VECTOR_LOOPS(isa)                                       \
  namespace isa {                                                             \
  float dot(const float* a, const float* b, int64_t count);                   \
  void add_scaled(float factor, const float* from, int64_t count, float* to); \
  }
QUIRE_DECLARE_VECTOR_LOOPS(scalar)
QUIRE_DECLARE_VECTOR_LOOPS(avx2)
#undef QUIRE_DECLARE_VECTOR_LOOPS
namespace avxvnni {
void linear_i8(const GroupTile& tile);
void linear_i4(const GroupTile& tile);
void linear_unpacked_i4(const GroupTile& tile);
}  // namespace avxvnni
namespace amx {
void pack_bf16(const float* in, int64_t stride, int rows, int64_t k, uint16_t* out);
void linear_bf16(const LinearTile& tile);
void pack_i8_tiles(const Int8Rows& rows);
void linear_i8_tiles(const GroupTile& tile);
}  // namespace amx
namespace scalar {
void interleave(const WordRows& rows);
}  // namespace scalar
namespace avx512vnni {
void interleave(const WordRows& rows);
}

}  // namespace quire::ops
