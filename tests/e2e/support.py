"""Runs the real binary for the end-to-end tests."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.environ["QUIRE_BINARY"]
SOURCE_DIR = pathlib.Path(os.environ["QUIRE_SOURCE_DIR"])
LEXICON = SOURCE_DIR / "models" / "lexicon"
FLOAT8 = SOURCE_DIR / "tests" / "golden" / "float8" / "quantised"  # without a tokenizer
TIMEOUT_S = 300


def run(*arguments, stdin="", binary=BINARY, env=None):
    """The finished process; its streams are text unless `stdin` is bytes."""
    text = isinstance(stdin, str)
    environment = {name: value for name, value in os.environ.items() if name != "HF_HOME"}
    environment.update(env or {})
    return subprocess.run(
        [binary, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8" if text else None,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )


def gpus(count=1, **settings):
    """The environment with so many simulated GPUs; settings as in tests/simulated_gpu/gpu.h."""
    return {"QUIRE_CUDA_LIBRARY": os.environ["QUIRE_SIMULATED_GPU"], "QUIRE_SIMULATED_GPUS": str(count),
            **{f"QUIRE_SIMULATED_{name.upper()}": str(value) for name, value in settings.items()}}


CPU = {"QUIRE_CUDA_LIBRARY": ""}  # the environment without a GPU
PROMPTS = ("define apple", "what does candid mean?", "give me a synonym for happy")


def generate(*arguments, env=None):
    """Answers to PROMPTS at temperature 0, a line of JSON each."""
    prompts = [argument for prompt in PROMPTS for argument in ("-p", prompt)]
    return run("generate", "--temperature", "0", "--chat", "--json", *prompts, *arguments, env=env)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def model_copy(without=(), **files):
    """A folder with the bundled model's files as links, but for those left out or given new bytes.

    A name's dots are written as `__`: model_copy(config__json="...").
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        replaced = {name.replace("__", "."): content for name, content in files.items()}
        for path in LEXICON.iterdir():
            if path.name not in without and path.name not in replaced:
                (folder / path.name).symlink_to(path)
        for name, content in replaced.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        yield folder


def lexicon_config(**changes):
    """The bundled model's config.json with some fields changed; None removes one."""
    config = json.loads((LEXICON / "config.json").read_text())
    for name, value in changes.items():
        if value is None:
            config.pop(name, None)
        else:
            config[name] = value
    return json.dumps(config)


def float8_lexicon_config(**changes):
    """The bundled model's config.json with FLOAT8's quantization_config, some fields of which are changed."""
    quantization = json.loads((FLOAT8 / "config.json").read_text())["quantization_config"]
    return lexicon_config(quantization_config=quantization | changes)


class CliTest(unittest.TestCase):
    maxDiff = None

    def assert_ok(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def assert_error(self, result, code, *fragments):
        """It failed with `code` and one line on standard error that holds all `fragments`."""
        stderr = result.stderr if isinstance(result.stderr, str) else result.stderr.decode()
        self.assertEqual(result.returncode, code, stderr)
        self.assertRegex(stderr, r"\Aquire: error: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, stderr)
