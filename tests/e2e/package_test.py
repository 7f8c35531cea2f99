"""The Debian package: made, unpacked elsewhere, and run from there."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from support import CliTest, run

BUILD_DIR = pathlib.Path(os.environ["QUIRE_BUILD_DIR"])


class Package(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        path = pathlib.Path(cls.folder.name)
        subprocess.run(["cpack", "-G", "DEB", "--config", BUILD_DIR / "CPackConfig.cmake", "-B", path / "deb"],
                       check=True, capture_output=True, cwd=BUILD_DIR)
        packages = {file.name.split("_")[0]: file for file in (path / "deb").glob("*.deb")}
        cls.package = packages.pop("quire")
        cls.cuda_package = packages.pop("quire-cuda", None)  # where the build has the CUDA backend
        assert not packages, packages
        cls.root = path / "root"
        subprocess.run(["dpkg-deb", "-x", cls.package, cls.root], check=True)
        cls.binary = cls.root / "usr" / "bin" / "quire"

    def field(self, name):
        return subprocess.run(["dpkg-deb", "-f", self.package, name], check=True, capture_output=True,
                              encoding="utf-8").stdout.strip()

    def test_says_what_it_depends_on(self):
        depends = self.field("Depends")
        for library in ("libc6", "libstdc++6", "libpcre2-8-0", "libedit2"):
            self.assertIn(library, depends)
        self.assertNotIn("-dev", depends)
        self.assertEqual(self.field("Package"), "quire")

    def test_cuda_is_a_package_of_its_own(self):
        if self.cuda_package is None:
            self.skipTest("this build has no CUDA backend")
        listing = subprocess.run(["dpkg-deb", "-c", self.cuda_package], check=True, capture_output=True,
                                 encoding="utf-8").stdout
        self.assertIn("/quire/libquire_cuda.so", listing)
        self.assertNotIn("bin/quire", listing)
        self.assertFalse(list(self.root.rglob("libquire_cuda.so")))

    def test_files(self):
        for path in ("usr/share/quire/models/lexicon/model.safetensors",
                     "usr/share/quire/models/lexicon/LICENSE-wordnet",
                     "usr/share/bash-completion/completions/quire",
                     "usr/share/zsh/vendor-completions/_quire",
                     "usr/share/fish/vendor_completions.d/quire.fish",
                     "usr/share/doc/quire/copyright",
                     "usr/share/doc/quire/operations.md",
                     "usr/share/man/man1/quire.1",
                     *(f"usr/share/quire/deploy/{name}" for name in (
                         "quire.service", "kubernetes.yaml", "prometheus.yml", "quire.rules.yml",
                         "grafana-dashboard.json"))):
            self.assertTrue((self.root / path).is_file(), path)

    def test_finds_the_model_in_its_prefix(self):
        result = run("inspect", binary=self.binary)
        self.assert_ok(result)
        self.assertIn(str(self.root / "usr/share/quire/models/lexicon"), result.stdout)

    def test_answers(self):
        result = run("generate", "--chat", "--temperature", "0", "--max-tokens", "48", "-p", "define apple",
                     binary=self.binary)
        self.assert_ok(result)
        self.assertIn("fruit", result.stdout)


if __name__ == "__main__":
    unittest.main()
