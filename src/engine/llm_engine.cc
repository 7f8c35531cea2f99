#include "quire/llm_engine.h"

#include <utility>

#include "engine/engine_core.h"

namespace quire {

class LLMEngine::Impl : public EngineCore {
 public:
  using EngineCore::EngineCore;
};

LLMEngine::LLMEngine(EngineConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
LLMEngine::~LLMEngine() = default;
LLMEngine::LLMEngine(LLMEngine&&) noexcept = default;
LLMEngine& LLMEngine::operator=(LLMEngine&&) noexcept = default;

void LLMEngine::add_request(std::string request_id, Prompt prompt, SamplingParams params,
                            RequestOptions options) {
  impl_->add(impl_->prepare(std::move(request_id), std::move(prompt), std::move(params),
                            std::move(options)));
}

void LLMEngine::abort(const std::string& request_id) {
  impl_->abort(request_id);
}
std::vector<RequestOutput> LLMEngine::step() {
  return impl_->step();
}
void LLMEngine::load_lora(const std::string& name, const std::string& path, bool replace) {
  impl_->loras().load(name, path, replace);
}
void LLMEngine::unload_lora(const std::string& name) {
  impl_->loras().unload(name);
}
std::vector<LoraAdapterInfo> LLMEngine::loras() const {
  return impl_->loras().list();
}
HeldLora LLMEngine::hold_lora(const std::string& name) {
  return impl_->loras().hold(name);
}
bool LLMEngine::is_finished() const {
  return impl_->is_finished();
}
EngineStats LLMEngine::stats() const {
  return impl_->stats();
}
const EngineConfig& LLMEngine::config() const {
  return impl_->config();
}
const MemoryPlan& LLMEngine::memory_plan() const {
  return impl_->memory_plan();
}
int64_t LLMEngine::max_model_len() const {
  return *impl_->config().max_model_len;
}
int64_t LLMEngine::vocab_size() const {
  return impl_->vocab_size();
}
SamplingParams LLMEngine::default_sampling_params() const {
  return impl_->default_sampling_params();
}
const Tokenizer& LLMEngine::tokenizer() const {
  return impl_->tokenizer();
}
const ChatTemplate& LLMEngine::chat_template() const {
  return impl_->chat_template();
}

}  // namespace quire
