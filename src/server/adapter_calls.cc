#include "server/adapter_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "server/adapter_paths.h"
#include "server/api/request_fields.h"

namespace quire::server {
namespace {

constexpr const char* kName = "lora_name";

Json checked_body(std::string request_body, const char* schema, const ServiceContext& context,
                  RequestBudget& budget) {
  budget.charge(parsed_body_bytes(request_body), "its body");
  Json body = parse_object_body(request_body);
  context.api.check(schema, body);
  return body;
}

// Makes the list say of this adapter what the engine says: calls for one name may cross.
void take_over(const std::string& name, const ServiceContext& context) {
  context.model.adapters->update(name, [&]() -> std::optional<ServedAdapter> {
    const std::vector<LoraAdapterInfo> loaded = context.engine.loras();
    const auto found = std::ranges::find(loaded, name, &LoraAdapterInfo::name);
    if (found == loaded.end()) return std::nullopt;
    return ServedAdapter{.name = name,
                         .root = found->path,
                         .parent = context.model.id,
                         .created = std::time(nullptr)};
  });
}

}  // namespace

std::string load_adapter(std::string request_body, const ServiceContext& context,
                         RequestBudget& budget) {
  Json body = checked_body(std::move(request_body), "LoadLoraAdapterRequest", context, budget);
  const JsonClearer clearer(body);
  std::string name;
  std::string path;
  bool in_place = false;
  take_field(body, kName, name);
  take_field(body, "lora_path", path);
  take_field(body, "load_inplace", in_place);
  if (is_base_name(context.model, name)) {
    throw invalid_request(
        fmt::format("lora_name is {}, which is the model itself; expected another name.", name),
        kName, "invalid_value");
  }
  if (!in_place && context.model.adapters->contains(name)) {
    throw invalid_request(fmt::format("The LoRA adapter {} is loaded already; unload it, or set "
                                      "load_inplace to true.",
                                      name),
                          kName, "invalid_value");
  }
  const std::string folder = adapter_folder(path, context.config.lora_dir);
  try {
    context.engine.load_lora(name, folder, in_place);
  } catch (const EngineFailure&) {
    throw;
  } catch (const Error& error) {
    throw invalid_request(error.what(), "lora_path", "invalid_value");
  }
  take_over(name, context);
  context.log.info(fmt::format("loaded the LoRA adapter {} from {}", name, folder));
  return fmt::format("Success: LoRA adapter '{}' added successfully.", name);
}

std::string unload_adapter(std::string request_body, const ServiceContext& context,
                           RequestBudget& budget) {
  Json body = checked_body(std::move(request_body), "UnloadLoraAdapterRequest", context, budget);
  const JsonClearer clearer(body);
  std::string name;
  take_field(body, kName, name);
  try {
    context.engine.unload_lora(name);
  } catch (const EngineFailure&) {
    throw;
  } catch (const Error&) {
    ApiError error = not_found(fmt::format("The LoRA adapter {} is not loaded.", name));
    error.param = kName;
    throw error;
  }
  take_over(name, context);
  context.log.info(fmt::format("unloaded the LoRA adapter {}", name));
  return fmt::format("Success: LoRA adapter '{}' removed successfully.", name);
}

}  // namespace quire::server
