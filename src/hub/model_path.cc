#include "hub/model_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/installation.h"
#include "base/mapped_file.h"
#include "hub/environment.h"
#include "hub/gguf_choice.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
using hub_internal::environment;
using hub_internal::expand_home;
namespace {

constexpr size_t kMaxNameLength = 200;
constexpr size_t kMaxRevisionBytes = 1024;

std::string shown(const std::string& model) {
  return model.size() > kMaxNameLength ? model.substr(0, kMaxNameLength) + "..." : model;
}

bool is_plain_name(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxNameLength && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), allowed);
}

bool holds_model(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error) || fs::exists(folder / "tokenizer.json", error);
}

// The names of the files in a folder and the folders in it, relative to it.
std::vector<std::string> files_below(const fs::path& folder) {
  constexpr int kMaxDepth = 1;
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it.depth() >= kMaxDepth) it.disable_recursion_pending();
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(it->path().lexically_relative(folder));
  }
  return names;
}

// What to run from a folder: the folder, or a GGUF file in it.
fs::path model_in(const fs::path& folder, const std::string& variant, const std::string& name) {
  if (variant.empty() && holds_model(folder)) return folder;
  const std::vector<std::string> files = files_below(folder);
  if (!variant.empty() || holds_gguf(files)) {
    return folder / choose_gguf(files, variant, name).front();
  }
  if (fs::exists(folder / "adapter_config.json")) {
    throw Error(fmt::format(
        "{}: this folder holds an adapter; expected a model, such as 'quire merge' writes of both.",
        folder.string()));
  }
  throw Error(
      fmt::format("{}: this folder holds no model; expected a config.json, a tokenizer.json or a "
                  "GGUF file in it.",
                  folder.string()));
}

std::vector<std::string> snapshots_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  constexpr size_t kMaxShown = 5;
  if (names.size() > kMaxShown) names.resize(kMaxShown);
  return names;
}

// The snapshot of `model` in `repository`, its folder models--org--name of the cache.
fs::path current_snapshot(const fs::path& repository, const std::string& model) {
  const fs::path ref = repository / "refs" / "main";
  const fs::path snapshots = repository / "snapshots";
  std::error_code error;
  if (!fs::exists(ref, error)) {
    const std::vector<std::string> names = snapshots_in(snapshots);
    throw Error(
        fmt::format("{}: expected a file with the revision to use. To download the model, run "
                    "'quire pull {}'{}.",
                    ref.string(), model,
                    names.empty() ? ""
                                  : fmt::format("; or give one of the folders that {} holds: {}",
                                                snapshots.string(), fmt::join(names, ", "))));
  }
  std::string revision = read_text_file(ref, kMaxRevisionBytes);
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r')) {
    revision.pop_back();
  }
  // It becomes a part of a path, so it must not lead elsewhere.
  if (!is_plain_name(revision)) {
    throw Error(fmt::format("{}: expected a revision, such as a commit's hash.", ref.string()));
  }
  fs::path snapshot = snapshots / revision;
  if (!fs::is_directory(snapshot, error)) {
    throw Error(
        fmt::format("{}: the revision {} that {} names is not in the cache; the download is "
                    "incomplete: run 'quire pull {}'.",
                    snapshot.string(), revision, ref.string(), model));
  }
  return snapshot;
}

}  // namespace

fs::path hub_cache_folder() {
  if (const auto cache = environment("HF_HUB_CACHE")) return expand_home(*cache);
  if (const auto cache = environment("HUGGINGFACE_HUB_CACHE")) return expand_home(*cache);
  return hub_internal::hugging_face_home() / "hub";
}

bool hub_internal::is_repository_name(std::string_view model) {
  const size_t slash = model.find('/');
  if (slash == std::string_view::npos) return is_plain_name(model);
  return is_plain_name(model.substr(0, slash)) && is_plain_name(model.substr(slash + 1));
}

std::string hub_internal::repository_folder_name(const std::string& model) {
  std::string name = "models--" + model;
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return name;
}

fs::path resolve_model(const std::string& model) {
  if (model.empty())
    throw Error("The model's name is empty; expected a folder or a repository's name.");
  if (model.find('\0') != std::string::npos) {
    throw Error(
        "The model's name has a zero byte in it; expected a folder or a repository's name.");
  }
  std::error_code error;
  if (fs::is_directory(model, error)) return model_in(model, "", model);
  if (fs::exists(model, error)) {
    if (fs::path(model).extension() == ".gguf") return model;
    throw Error(fmt::format("{}: this is a file; expected the folder of a model, or a .gguf file.",
                            shown(model)));
  }
  const GgufName name = parse_gguf_name(model);
  if (!name.variant.empty() && fs::is_directory(name.model, error)) {
    return model_in(name.model, name.variant, name.model);
  }
  const bool is_file = model.ends_with(".gguf");
  if (is_file || !hub_internal::is_repository_name(name.model)) {
    throw Error(fmt::format("{}: there is no such {}.", shown(model), is_file ? "file" : "folder"));
  }
  const fs::path repository = hub_cache_folder() / hub_internal::repository_folder_name(name.model);
  if (fs::is_directory(repository, error)) {
    return model_in(current_snapshot(repository, model), name.variant, name.model);
  }
  throw Error(
      fmt::format("{}: there is no such folder in {}, and no {} in the Hugging Face cache. To "
                  "download the model, run 'quire pull {}'.",
                  model, fs::current_path(error).string(), repository.string(), model));
}

fs::path hub_internal::find_bundled_model(const fs::path& prefix, const fs::path& source_folder) {
  const fs::path installed = prefix / QUIRE_MODELS_FOLDER / "lexicon";
  const fs::path source = source_folder / "models" / "lexicon";
  for (const fs::path& folder : {installed, source}) {
    if (holds_model(folder)) return folder;
  }
  throw Error(fmt::format("The bundled model is neither in {} nor in {}; name a model's folder.",
                          installed.string(), source.string()));
}

fs::path bundled_model() {
  std::error_code error;
  const fs::path prefix = installation_prefix(error);
  if (error) {
    throw Error(
        fmt::format("The bundled model can't be found, as the system does not say where "
                    "quire is installed: {}; name a model's folder.",
                    error.message()));
  }
  return hub_internal::find_bundled_model(prefix, QUIRE_SOURCE_DIR);
}

}  // namespace quire
