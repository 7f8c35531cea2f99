"""llama.cpp for compare.py: fetched, built, and its benchmarks run."""

import json
import pathlib
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-quantize")
# Everything for this machine's CPU; nothing that the three programs do without.
SETTINGS = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "LLAMA_CURL": "OFF",
            "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "OFF",
            "LLAMA_BUILD_APP": "OFF"}


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} exits with {result.returncode}:\n{result.stderr[-4000:]}")
    return result.stdout


def fetch(folder):
    """The sources in `folder`, from PyPI if they are not there."""
    sources = "llama_cpp_python-*/vendor/llama.cpp"
    if any(folder.glob(sources)):
        return next(folder.glob(sources))
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes",
        "--dest", folder, "--requirement", HERE / "requirements.txt")
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
        archive.extractall(folder)
    return next(folder.glob(sources))


def build(folder):
    """The folder of the programs, built if they are not there."""
    programs = folder / "build" / "bin"
    if not all((programs / name).exists() for name in PROGRAMS):
        settings = [f"-D{name}={value}" for name, value in SETTINGS.items()]
        run("cmake", "-S", fetch(folder), "-B", folder / "build", *settings)
        run("cmake", "--build", folder / "build", "--parallel", "--target", *PROGRAMS)
    return programs


class LlamaCpp:
    """Its figures are tokens a second."""

    def __init__(self, programs, threads):
        self.programs, self.threads = programs, threads

    def quantise(self, model, out, scheme):
        if not out.exists():
            run(self.programs / "llama-quantize", model, out, scheme)
        return out

    def _bench(self, model, *arguments):
        rows = json.loads(run(self.programs / "llama-bench", "-m", model, "-t", self.threads, "-r", 1, "-o", "json",
                              *arguments))
        return rows[-1]["avg_ts"]

    def prefill(self, model, tokens):
        return self._bench(model, "-p", tokens, "-n", 0)

    def decode(self, model, tokens, context):
        return self._bench(model, "-p", 0, "-n", tokens, "-d", context)

    def decode_int8_cache(self, model, tokens, context):
        return self._bench(model, "-p", 0, "-n", tokens, "-d", context, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")

    def streams(self, model, count, prompt, tokens):
        lines = run(self.programs / "llama-batched-bench", "-m", model, "-t", self.threads, "-c",
                    count * (prompt + tokens), "-b", 2048, "-npp", prompt, "-ntg", tokens, "-npl", count,
                    "--output-format", "jsonl").splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return rows[-1]["speed_tg"]
