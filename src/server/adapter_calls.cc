#include "server/adapter_calls.h"

#include <fmt/format.h>

#include <cstddef>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "quire/lora_serving.h"
#include "server/adapter_paths.h"
#include "server/api/request_fields.h"

namespace quire::server {
namespace {

constexpr const char* kName = "lora_name";

Json checked_body(std::string request_body, const char* schema, const ServiceContext& context,
                  RequestBudget& budget) {
  budget.charge_body(request_body);
  Json body = parse_object_body(request_body);
  context.api.check(schema, body);
  return body;
}

// Updates the list's entry of this adapter from the engine: calls for one name may overlap.
void take_over(const std::string& name, const ServiceContext& context) {
  context.model.adapters->update(
      name, [&](const ServedAdapter* before) -> std::optional<ServedAdapter> {
        const std::optional<LoraAdapterInfo> loaded = context.engine.find_lora_info(name);
        if (!loaded) return std::nullopt;
        return ServedAdapter{.name = name,
                             .root = loaded->path,
                             .parent = before == nullptr ? context.model.id : before->parent,
                             .created = std::time(nullptr)};
      });
}

void check_name(const std::string& name, bool in_place, const ServiceContext& context) {
  const AdapterList& adapters = *context.model.adapters;
  const auto refuse = [](const std::string& message) {
    throw invalid_request(message, kName, "invalid_value");
  };
  if (name.size() > kMaxAdapterNameBytes) {
    refuse(fmt::format("lora_name has {} bytes in UTF-8; expected at most {}.", name.size(),
                       kMaxAdapterNameBytes));
  }
  if (const std::string conflict = name_conflict(context.model, name); !conflict.empty()) {
    refuse("lora_name " + conflict);
  }
  if (adapters.contains(name)) {
    if (in_place) return;
    refuse(
        fmt::format("The LoRA adapter {} is loaded already; unload it, or set load_inplace to "
                    "true.",
                    name));
  }
  if (adapters.size() >= context.config.max_adapter_names) {
    refuse(fmt::format("{} LoRA adapters are loaded; expected at most {} at a time: unload some.",
                       adapters.size(), context.config.max_adapter_names));
  }
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
  check_name(name, in_place, context);
  // Checked again each time before it is read, because the content of the folder may change.
  const LoraPathCheck check = [allowed = context.config.lora_dir](const std::string& folder) {
    adapter_folder(folder, allowed);
  };
  const std::string folder = adapter_folder(path, context.config.lora_dir);
  try {
    context.engine.load_lora(name, folder, in_place, check);
  } catch (const EngineFailure&) {
    throw;
  } catch (const ApiError&) {
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
