#include "request/batch_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "QB";
constexpr uint8_t kVersion = 5;

[[noreturn]] void refuse(std::string_view problem) {
  throw Error(fmt::format("The bytes of a scheduled batch cannot be read: {}.", problem));
}

// Writer and Reader have the same functions, so that one list of fields serves both ways.
class Writer {
 public:
  static constexpr bool kReads = false;

  std::vector<std::byte> take() { return std::move(bytes_); }

  void byte(uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }

  template <std::integral T>
  void number(T value) {
    auto rest = static_cast<uint64_t>(value);
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      rest = (static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63);
    }
    for (; rest >= 0x80; rest >>= 7) byte(static_cast<uint8_t>(rest | 0x80));
    byte(static_cast<uint8_t>(rest));
  }
  void number(bool value) { byte(value ? 1 : 0); }

  template <typename Bits>
  void bits(Bits value) {
    for (size_t i = 0; i < sizeof(Bits); ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void real(double value) { bits(std::bit_cast<uint64_t>(value)); }
  void real(float value) { bits(std::bit_cast<uint32_t>(value)); }

  template <typename T, typename Each>
  void list(const std::vector<T>& values, Each each) {
    number(values.size());
    for (const T& value : values) each(value);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t left() const { return bytes_.size(); }

  uint8_t byte() {
    if (bytes_.empty()) refuse("they end too early");
    const auto value = static_cast<uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }

  template <std::integral T>
  void number(T& value) {
    const uint64_t coded = varint();
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>((coded >> 1) ^ (~(coded & 1) + 1));
      if (!std::in_range<T>(wide)) refuse(fmt::format("{} is out of its field's range", wide));
      value = static_cast<T>(wide);
    } else {
      if (!std::in_range<T>(coded)) refuse(fmt::format("{} is out of its field's range", coded));
      value = static_cast<T>(coded);
    }
  }
  void number(bool& value) {
    const uint8_t coded = byte();
    if (coded > 1) refuse(fmt::format("a flag is {}, but must be 0 or 1", coded));
    value = coded == 1;
  }

  template <typename Bits>
  Bits bits() {
    Bits value = 0;
    for (size_t i = 0; i < sizeof(Bits); ++i) value |= Bits{byte()} << (8 * i);
    return value;
  }
  void real(double& value) { value = std::bit_cast<double>(bits<uint64_t>()); }
  void real(float& value) { value = std::bit_cast<float>(bits<uint32_t>()); }

  template <typename T, typename Each>
  void list(std::vector<T>& values, Each each) {
    values.resize(length());
    for (T& value : values) each(value);
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t part = byte();
      if (shift == 63 && part > 1) break;
      value |= (part & 0x7f) << shift;
      if (part == 0 && shift > 0) refuse("a number ends with a byte of 0");
      if (part < 0x80) return value;
    }
    refuse("a number has more than 64 bits");
  }

  // The length of a list: every item takes at least a byte.
  size_t length() {
    const uint64_t count = varint();
    if (count > left()) refuse(fmt::format("a list of {} items has {} bytes", count, left()));
    return static_cast<size_t>(count);
  }

  std::span<const std::byte> bytes_;
};

template <typename Codec, typename List>
void code_numbers(Codec& codec, List& values) {
  codec.list(values, [&](auto& value) { codec.number(value); });
}

template <typename Codec, typename Optional>
void code_optional(Codec& codec, Optional& value) {
  bool has_value = value.has_value();
  codec.number(has_value);
  if constexpr (Codec::kReads) {
    value.reset();
    if (has_value) value.emplace();
  }
  if (has_value) codec.number(*value);
}

void code_biases(Writer& writer, const std::map<int32_t, float>& biases) {
  writer.number(biases.size());
  for (const auto& [id, bias] : biases) {
    writer.number(id);
    writer.real(bias);
  }
}

void code_biases(Reader& reader, std::map<int32_t, float>& biases) {
  std::vector<std::pair<int32_t, float>> entries;
  reader.list(entries, [&](auto& entry) {
    reader.number(entry.first);
    reader.real(entry.second);
  });
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].first <= entries[i - 1].first) refuse("the ids of a logit_bias do not ascend");
  }
  biases.insert(entries.begin(), entries.end());
}

template <typename Codec, typename Params>
void code_params(Codec& codec, Params& params) {
  codec.real(params.temperature);
  codec.number(params.top_k);
  codec.real(params.top_p);
  codec.real(params.min_p);
  codec.real(params.repetition_penalty);
  codec.real(params.presence_penalty);
  codec.real(params.frequency_penalty);
  code_biases(codec, params.logit_bias);
  code_optional(codec, params.max_tokens);
  codec.number(params.min_tokens);
  code_numbers(codec, params.stop_token_ids);
  codec.number(params.ignore_eos);
  code_optional(codec, params.logprobs);
  code_optional(codec, params.prompt_logprobs);
}

template <typename Codec, typename Facts>
void code_request(Codec& codec, Facts& request) {
  codec.number(request.number);
  code_numbers(codec, request.prompt_token_ids);
  code_params(codec, request.params);
  codec.number(request.has_logits_processors);
  codec.number(request.is_constrained);
  codec.number(request.seed);
  codec.number(request.lora_id);
}

void code_kind(Writer& writer, ChunkKind kind) {
  writer.byte(static_cast<uint8_t>(kind));
}

void code_kind(Reader& reader, ChunkKind& kind) {
  const uint8_t value = reader.byte();
  if (value > static_cast<uint8_t>(ChunkKind::kVerify)) {
    refuse(fmt::format("there is no chunk of kind {}", value));
  }
  kind = static_cast<ChunkKind>(value);
}

template <typename Codec, typename Sequence>
void code_sequence(Codec& codec, Sequence& sequence) {
  codec.number(sequence.id);
  code_kind(codec, sequence.kind);
  codec.number(sequence.num_computed_tokens);
  codec.number(sequence.num_tokens);
  codec.number(sequence.samples);
  code_numbers(codec, sequence.draft_token_ids);
  code_numbers(codec, sequence.new_block_ids);
}

bool all_at_least(int32_t least, const std::vector<int32_t>& ids) {
  return std::ranges::all_of(ids, [least](int32_t id) { return id >= least; });
}

void check_request(const Request& request) {
  if (request.prompt_token_ids.empty()) refuse("a request has no prompt");
  if (!all_at_least(0, request.prompt_token_ids)) refuse("a token of a prompt is below 0");
  request.params.validate();
}

// Checks a chunk against ChunkKind: its drafts, length and sampling.
void check_kind(const ScheduledSequence& sequence) {
  const size_t num_drafts = sequence.draft_token_ids.size();
  if (num_drafts > kMaxDraftTokens) refuse(fmt::format("a chunk has {} drafts", num_drafts));
  if (!all_at_least(kDraftOfRunner, sequence.draft_token_ids)) refuse("a draft is below -1");
  const bool agrees =
      (sequence.kind == ChunkKind::kVerify) == (num_drafts > 0) &&
      (sequence.kind == ChunkKind::kPrefill ||
       (sequence.samples && sequence.num_tokens == 1 + static_cast<int64_t>(num_drafts)));
  if (!agrees) refuse("a chunk's drafts, length and kind do not go together");
}

void check_sequence(const ScheduledSequence& sequence) {
  check_kind(sequence);
  // Positions are 32 bits wide, and no sum of these overflows.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (sequence.num_tokens < 1 || sequence.num_tokens > kMost) {
    refuse(fmt::format("a chunk has {} tokens", sequence.num_tokens));
  }
  if (sequence.num_computed_tokens < 0 || sequence.num_computed_tokens > kMost) {
    refuse(fmt::format("a chunk begins at token {}", sequence.num_computed_tokens));
  }
  if (sequence.num_computed_tokens + sequence.num_tokens > kMost) {
    refuse(fmt::format("a chunk of {} tokens begins at token {}", sequence.num_tokens,
                       sequence.num_computed_tokens));
  }
  if (!all_at_least(0, sequence.new_block_ids)) refuse("a block's id is below 0");
}

// The batch's requests, each once, as they come first, and which one each added sequence is of.
struct Requests {
  std::vector<std::shared_ptr<const Request>> requests;
  std::vector<uint32_t> of_added;
};

Requests requests_of(const ScheduledBatch& batch) {
  Requests result;
  for (const NewSequence& added : batch.added) {
    const auto at = std::ranges::find(result.requests, added.request) - result.requests.begin();
    if (at == std::ssize(result.requests)) result.requests.push_back(added.request);
    result.of_added.push_back(static_cast<uint32_t>(at));
  }
  return result;
}

// Whether requests are as requests_of() makes them.
void check_requests(const Requests& read) {
  std::set<uint64_t> numbers;
  for (const auto& request : read.requests) {
    if (!numbers.insert(request->number).second) {
      refuse(fmt::format("request {} is there twice", request->number));
    }
  }
  size_t num_used = 0;
  for (const uint32_t request : read.of_added) {
    if (request >= read.requests.size()) refuse("a sequence is of no request");
    if (request > num_used) refuse("requests are not in the order of their sequences");
    if (request == num_used) ++num_used;
  }
  if (num_used < read.requests.size()) refuse("a request is of no sequence");
}

}  // namespace

std::vector<std::byte> encode_batch(const ScheduledBatch& batch) {
  Writer writer;
  for (const char c : kMagic) writer.byte(static_cast<uint8_t>(c));
  writer.byte(kVersion);
  writer.number(batch.step);
  writer.number(batch.drafter_reads_prompts);
  code_numbers(writer, batch.removed);
  const Requests requests = requests_of(batch);
  writer.list(requests.requests, [&](const auto& request) { code_request(writer, *request); });
  code_numbers(writer, requests.of_added);
  for (const NewSequence& added : batch.added) {
    writer.number(added.id);
    writer.number(added.index);
    code_numbers(writer, added.output_token_ids);
  }
  writer.list(batch.sequences, [&](const auto& sequence) { code_sequence(writer, sequence); });
  return writer.take();
}

ScheduledBatch decode_batch(std::span<const std::byte> bytes, const LoraById& loras) {
  Reader reader(bytes);
  for (const char c : kMagic) {
    if (reader.byte() != static_cast<uint8_t>(c)) refuse("they are no scheduled batch");
  }
  const uint8_t version = reader.byte();
  if (version != kVersion) {
    refuse(fmt::format("they are of version {}, but this program reads {}", version, kVersion));
  }
  ScheduledBatch batch;
  reader.number(batch.step);
  reader.number(batch.drafter_reads_prompts);
  code_numbers(reader, batch.removed);
  Requests read;
  reader.list(read.requests, [&](auto& request) {
    Request facts;
    code_request(reader, facts);
    check_request(facts);
    if (loras && facts.lora_id != 0) facts.lora = loras(facts.lora_id);
    request = std::make_shared<const Request>(std::move(facts));
  });
  code_numbers(reader, read.of_added);
  check_requests(read);
  for (const uint32_t request : read.of_added) {
    NewSequence& added = batch.added.emplace_back();
    added.request = read.requests[request];
    reader.number(added.id);
    reader.number(added.index);
    code_numbers(reader, added.output_token_ids);
    if (!all_at_least(0, added.output_token_ids)) refuse("a generated token is below 0");
  }
  reader.list(batch.sequences, [&](auto& sequence) {
    code_sequence(reader, sequence);
    check_sequence(sequence);
    batch.num_tokens += sequence.num_tokens;
  });
  if (reader.left() > 0) refuse(fmt::format("{} bytes follow the last field", reader.left()));
  return batch;
}

}  // namespace quire
