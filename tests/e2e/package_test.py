"""The Debian packages: made, unpacked elsewhere, and run from there."""

import os
import pathlib
import re
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
        cls.dev_package = packages.pop("libquire-dev")
        (library,) = packages
        cls.library_package = packages.pop(library)
        assert not packages, packages
        cls.root = path / "root"
        subprocess.run(["dpkg-deb", "-x", cls.package, cls.root], check=True)
        cls.binary = cls.root / "usr" / "bin" / "quire"

    def field(self, name, package=None):
        return subprocess.run(["dpkg-deb", "-f", package or self.package, name], check=True, capture_output=True,
                              encoding="utf-8").stdout.strip()

    def test_says_what_it_depends_on(self):
        depends = self.field("Depends")
        for library in ("libc6", "libstdc++6", "libpcre2-8-0", "libedit2"):
            self.assertIn(library, depends)
        self.assertNotIn("-dev", depends)
        self.assertEqual(self.field("Package"), "quire")

    def listing(self, package):
        """The paths of the package's files."""
        lines = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True,
                               encoding="utf-8").stdout.splitlines()
        return [re.sub(r" -> .*", "", line).split()[-1].removeprefix("./") for line in lines if line[0] != "d"]

    def test_the_library_is_a_package_that_its_soname_names(self):
        name, version = self.field("Package", self.library_package), self.field("Version")
        self.assertRegex(name, r"\Alibquire\d+\.\d+\Z")
        soname = name.replace("libquire", "libquire.so.")
        files = [pathlib.PurePath(path).name for path in self.listing(self.library_package)]
        self.assertEqual(sorted(files), sorted([soname, f"libquire.so.{version}"]))
        self.assertIn("libpcre2-8-0", self.field("Depends", self.library_package))
        self.assertNotIn("-dev", self.field("Depends", self.library_package))

    def test_headers_are_a_package_of_their_own(self):
        library, version = self.field("Package", self.library_package), self.field("Version")
        self.assertIn(f"{library} (= {version})", self.field("Depends", self.dev_package))
        names = self.listing(self.dev_package)
        for path in ("usr/include/quire/quire.h", "cmake/quire/quireConfig.cmake", "cmake/quire/quireConfigVersion.cmake",
                     "pkgconfig/quire.pc", "/libquire.so"):
            self.assertTrue(any(name.endswith(path) for name in names), path)
        self.assertFalse([name for name in self.listing(self.package) if "include/" in name or "libquire" in name])

    def cuda(self):
        if self.cuda_package is None:
            self.skipTest("this build has no CUDA backend")
        return self.cuda_package

    def test_cuda_depends_on_what_it_is_linked_to(self):
        package = self.cuda()
        depends = self.field("Depends", package).split(", ")
        names = {entry.split()[0] for entry in depends}
        version = self.field("Version")
        library = self.field("Package", self.library_package)
        self.assertIn(f"quire (= {version}) | {library} (= {version})", depends)
        self.assertTrue(any(re.fullmatch(r"libcublas-\d+-\d+ \| libcublas\d+", entry) for entry in depends), depends)
        # The library's own word for what it needs, and the distribution's for what that is in.
        library = next(path for path in self.unpacked(package).rglob("libquire_cuda.so"))
        dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, encoding="utf-8").stdout
        needed = re.findall(r"\(NEEDED\).*\[(\w+)[^]]*\.so", dynamic)
        self.assertIn("libfmt", needed)
        for stem in needed:
            if not stem.startswith(("libcublas", "ld")):
                known = {"libc": "libc6", "libm": "libc6", "libgcc_s": "libgcc-s1", "libstdc": "libstdc++6"}.get(stem, stem)
                self.assertTrue(any(name.startswith(known) for name in names), (stem, depends))
        self.assertFalse([name for name in names if name.endswith("-dev")])

    def test_descriptions(self):
        self.assertIn("x86-64", self.field("Description"))
        package = self.cuda()
        self.assertIn("quire-cuda", self.field("Description"))
        self.assertEqual(self.field("Suggests"), "quire-cuda")
        self.assertIn("NVIDIA", self.field("Description", package))

    def test_the_cuda_library_is_looked_for_where_its_package_puts_it(self):
        package = self.cuda()
        environment = {name: value for name, value in os.environ.items() if name != "QUIRE_CUDA_LIBRARY"}

        def plan(root):
            return subprocess.run([root / "usr" / "bin" / "quire", "plan", "--device", "cuda"], capture_output=True,
                                  encoding="utf-8", env=environment, check=False)

        alone = plan(self.root)
        self.assert_error(alone, 1, "libquire_cuda.so was found neither beside the program nor in "
                                    f"{self.root}/usr/lib", "install the package quire-cuda")
        both = self.unpacked(self.package, package)
        # What it says next depends on the machine's driver, GPUs and cuBLAS.
        self.assertNotIn("libquire_cuda.so was found neither", plan(both).stderr)
        self.assertNotIn("was not made for this quire", plan(both).stderr)

    def unpacked(self, *packages):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, folder.name], check=True)
        return pathlib.Path(folder.name)

    def test_cuda_is_a_package_of_its_own(self):
        self.cuda()
        listing = subprocess.run(["dpkg-deb", "-c", self.cuda_package], check=True, capture_output=True,
                                 encoding="utf-8").stdout
        self.assertIn("/quire/libquire_cuda.so", listing)
        self.assertNotIn("bin/quire", listing)
        self.assertFalse(list(self.root.rglob("libquire_cuda.so")))

    def test_files(self):
        for path in ("usr/share/quire/models/lexicon/model.safetensors",
                     "usr/share/quire/models/lexicon/LICENSE-wordnet",
                     "usr/share/quire/models/lexicon-pirate/adapter_model.safetensors",
                     "usr/share/quire/models/lexicon-eagle3/model.safetensors",
                     "usr/share/bash-completion/completions/quire",
                     "usr/share/zsh/vendor-completions/_quire",
                     "usr/share/fish/vendor_completions.d/quire.fish",
                     "usr/share/doc/quire/copyright",
                     "usr/share/doc/quire/operations.md",
                     "usr/share/doc/quire/performance/cpu.md",
                     "usr/share/man/man1/quire.1",
                     *(f"usr/share/quire/deploy/{name}" for name in (
                         "quire.service", "quire-gpu.conf", "kubernetes.yaml", "prometheus.yml", "quire.rules.yml",
                         "grafana-dashboard.json", "leaderworkerset.yaml", "leaderworkerset-gpu.yaml", "quire.sbatch"))):
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
