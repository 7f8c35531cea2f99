"""A hub, an empty cache and what quire pull must leave in it, for the tests of quire pull."""

import hashlib
import os
import pathlib
import random
import subprocess
import tempfile

from fake_hub import COMMIT, FakeHub, git_sha1, serving
from support import BINARY, CliTest, run

CONFIG = b'{"architectures": ["Qwen3ForCausalLM"]}'
WEIGHTS = random.Random(1).randbytes(300_000)
MODEL = {
    "config.json": CONFIG,
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": WEIGHTS,
    "README.md": b"# A model",
    "pytorch_model.bin": b"pickle",
    "original/model.safetensors": b"a duplicate",
}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors"}


class PullTest(CliTest):
    """Each test has a hub of its own and an empty cache."""

    files = MODEL

    def setUp(self):
        self.hub = self.enterContext(serving(FakeHub("org/name", self.files)))
        self.cache = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder = self.cache / "models--org--name"
        self.snapshot = self.folder / "snapshots" / COMMIT

    def environment(self, **extra):
        names = ("HF_TOKEN", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "HF_HOME": str(self.home),
                **{name: "" for name in names}, **extra}

    def pull(self, *arguments, model="org/name", **env):
        return run("pull", model, *arguments, env=self.environment(**env))

    def start(self):
        return subprocess.Popen([BINARY, "pull", "org/name"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                encoding="utf-8", env=os.environ | self.environment())

    def assert_pulled(self, result, names=NEEDED):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_cache(names)

    def assert_cache(self, names=NEEDED):
        """The cache holds exactly these files, laid out as huggingface_hub does it."""
        found = {str(path.relative_to(self.snapshot)) for path in self.snapshot.rglob("*") if not path.is_dir()}
        self.assertEqual(found, set(names))
        for name in names:
            path = self.snapshot / name
            up = "../" * (2 + name.count("/"))
            self.assertEqual(os.readlink(path), f"{up}blobs/{self.hub.etag(name)}")
            self.assertEqual(path.read_bytes(), self.hub.files[name])
        self.assertEqual((self.folder / "refs/main").read_text(), COMMIT)
        self.assert_no_lies()

    def assert_no_lies(self):
        """Whatever is in the cache under a final name is what the name says."""
        for blob in (self.folder / "blobs").glob("*"):
            if blob.suffix != ".incomplete":
                content = blob.read_bytes()
                self.assertIn(blob.name, (hashlib.sha256(content).hexdigest(), git_sha1(content)))
        for path in self.snapshot.rglob("*"):
            self.assertTrue(path.exists(), f"{path} leads nowhere")
        if (self.folder / "refs/main").exists():
            self.assertTrue((self.snapshot / "config.json").exists() or any(self.snapshot.rglob("*.gguf")))

    def assert_error_after_lines(self, result, *fragments):
        """An error, after the lines of the files that were complete by then."""
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("quire: error: "), result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, last)
        self.assert_nothing_linked()

    def assert_nothing_linked(self):
        self.assertFalse((self.folder / "refs/main").exists())
        self.assertFalse(self.snapshot.exists())
        self.assert_no_lies()
