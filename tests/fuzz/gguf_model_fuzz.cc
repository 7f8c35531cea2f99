// The bytes are a GGUF file, from which everything is read that makes a model: its config, its
// dequantised weights, its tokenizer and its chat template. Each reader accepts it or throws an
// Error.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/gguf_text.h"
#include "loader/gguf_checkpoint.h"
#include "loader/gguf_config.h"
#include "loader/gguf_model.h"
#include "loader/tensor_rows.h"
#include "quire/error.h"

namespace {

// A file in memory with these bytes, which has a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
};

template <typename Work>
void attempt(const Work& work) {
  try {
    work();
  } catch (const quire::Error&) {
  }
}

void read_weights(const quire::GgufModel& model) {
  std::vector<std::byte> scratch;
  for (const quire::CheckpointTensor& tensor : quire::gguf_checkpoint_tensors(model)) {
    const bool is_matrix = tensor.shape.size() == 2;
    const bool has_blocks = quire::block_type_of(tensor) != nullptr;
    if (tensor.shape.size() > 2) continue;
    const quire::DType dtype =
        has_blocks || tensor.dtype == "F32" ? quire::DType::kFloat32 : quire::DType::kFloat16;
    const int64_t columns = is_matrix ? tensor.shape[1] : 1;
    quire::read_rows(tensor, dtype, {0, tensor.shape[0]}, {columns / 3, columns}, scratch);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  attempt([&] {
    const quire::GgufModel model = quire::GgufModel::open(file.path());
    attempt([&] { quire::gguf_model_config(model); });
    attempt([&] { quire::gguf_generation_config(model); });
    attempt([&] { read_weights(model); });
    attempt([&] {
      const quire::Tokenizer tokenizer = quire::gguf_tokenizer(model.header());
      if (tokenizer.encode("a b <s>").size() > 100) std::abort();
    });
    attempt([&] { quire::gguf_chat_template(model.header()); });
  });
  return 0;
}
