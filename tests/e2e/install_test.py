"""The library as it is installed: what libquire.so exports, and programs that are built against it and run."""

import os
import pathlib
import re
import subprocess
import tempfile
import textwrap
import unittest

from support import SOURCE_DIR

BUILD_DIR = pathlib.Path(os.environ["QUIRE_BUILD_DIR"])
COMPILERS = ("g++", "clang++")
EXAMPLES = {"offline_batch": r"> define apple\n.*fruit", "streaming": r"first: .*\nsecond: ",
            "logits_processor": r"without: .*\nwith: ", "adapters": r"model: ephemeral .*\nmine: .*Arr, matey!"}
# No GPU: the machine's own would answer otherwise.
ENVIRONMENT = {**os.environ, "QUIRE_CUDA_LIBRARY": ""}


def output_of(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False,
                            **{"env": ENVIRONMENT, **options})
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@unittest.skipIf(os.environ.get("QUIRE_SANITIZE"), "builds with sanitizers have no libquire.so")
class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        cls.prefix = cls.folder / "prefix"
        for component in ("Unspecified", "library", "dev"):
            output_of("cmake", "--install", BUILD_DIR, "--prefix", cls.prefix, "--component", component)
        cls.library = next(cls.prefix.rglob("libquire.so")).resolve()
        cls.headers = {path.name: path.read_text() for path in (cls.prefix / "include" / "quire").iterdir()}

    def exported(self):
        """The names of what the library exports, without arguments: quire::LLM::generate."""
        lines = output_of("nm", "-D", "--defined-only", "-C", self.library).splitlines()
        return {re.sub(r"\[abi:\w+\]", "", line.split(maxsplit=2)[2]).split("(")[0] for line in lines}

    def test_exports_what_headers_declare_and_nothing_else(self):
        declared = "\n".join(re.sub(r"//.*", "", text) for text in self.headers.values())
        classes = set(re.findall(r"^class (\w+) {", declared, re.MULTILINE))
        functions = set(re.findall(r"^(?!inline|using|namespace)[\w:<>]+[\w:<>, ]* (\w+)\(", declared, re.MULTILINE))
        self.assertLessEqual({"LLM", "AsyncLLM", "Tokenizer"}, classes)
        self.assertLessEqual({"plan", "version", "bundled_model"}, functions)
        names = {name for name in self.exported() if not re.match(r"typeinfo (name )?for quire::(Error|EngineFailure)$", name)}
        members = {name.split("::")[1] for name in names if name.count("::") == 2}
        self.assertEqual(members, classes | {"SamplingParams"})
        self.assertEqual({name.split("::")[1] for name in names if name.count("::") == 1}, functions)
        for name in names:
            scope, *middle, last = name.split("::")
            self.assertEqual(scope, "quire", name)
            self.assertLessEqual(len(middle), 1, name)
            self.assertIn(f"{last}(", declared, name)

    def test_has_a_soname_of_its_version(self):
        version = output_of(self.prefix / "bin" / "quire", "--version").split()[-1]
        major_minor = ".".join(version.split(".")[:2])
        self.assertIn(f"[libquire.so.{major_minor}]", output_of("readelf", "-d", self.library))
        self.assertEqual(self.library.name, f"libquire.so.{version}")

    def test_headers_include_what_is_installed(self):
        for name, text in self.headers.items():
            for quoted, target in re.findall(r'#include ([<"])([^>"]+)', text):
                if quoted == '"':
                    self.assertTrue((self.prefix / "include" / target).is_file(), f"{name}: {target}")
                else:  # the standard library's, or the package's that libquire-dev depends on
                    self.assertRegex(target, r"^(\w+|nlohmann/json(_fwd)?\.hpp)$", name)

    def test_examples_build_with_find_package(self):
        for compiler in COMPILERS:
            build = self.folder / f"examples-{compiler}"
            output_of("cmake", "-G", "Ninja", "-S", SOURCE_DIR / "examples", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                      f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
            output_of("cmake", "--build", build)
            for name, expected in EXAMPLES.items():
                models = self.prefix / "share/quire/models"
                adapters = [models / "lexicon-pirate"] if name == "adapters" else []
                said = output_of(build / f"example_{name}", models / "lexicon", *adapters)
                self.assertRegex(said, re.compile(expected, re.DOTALL))

    def build_with_pkg_config(self, compiler, name, source):
        file = self.folder / f"{name}.cc"
        file.write_text(source)
        environment = {**ENVIRONMENT, "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        flags = output_of("pkg-config", "--cflags", "--libs", "quire", env=environment).split()
        program = self.folder / f"{name}-{compiler}"
        output_of(compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", file, "-o", program, *flags,
                  f"-Wl,-rpath,{self.library.parent}")
        return program

    def test_the_readmes_program_builds_with_pkg_config(self):
        readme = (SOURCE_DIR / "README.md").read_text(encoding="utf-8")
        (source,) = re.findall(r"\n\n((?:    #include .*\n)(?:    .*\n|\n(?=    ))*)", readme)
        program = self.build_with_pkg_config("g++", "readme", textwrap.dedent(source))
        self.assertIn("fruit", output_of(program))

    def test_finds_what_is_installed_beside_it(self):
        source = (SOURCE_DIR / "tests" / "install" / "where.cc").read_text()
        program = self.build_with_pkg_config("clang++", "where", source)
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "QUIRE_CUDA_LIBRARY"}
        said = output_of(program, env=environment)
        self.assertIn(f"model {self.prefix}/share/quire/models/lexicon\n", said)
        self.assertIn("libquire_cuda.so was found neither beside libquire.so nor in "
                      f"{self.library.parent}/quire; install the package quire-cuda", said)

    def test_is_the_library_alone_within_another_project(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "main.cc").write_text('#include "quire/version.h"\nint main() { return quire::version().empty(); }\n')
        (project / "CMakeLists.txt").write_text(textwrap.dedent(f"""\
            cmake_minimum_required(VERSION 3.25)
            project(uses_quire LANGUAGES CXX)
            include(FetchContent)
            FetchContent_Declare(quire SOURCE_DIR {SOURCE_DIR})
            FetchContent_MakeAvailable(quire)
            add_executable(program main.cc)
            target_link_libraries(program PRIVATE quire::quire)
            """))
        build = self.folder / "project-build"
        output_of("cmake", "-G", "Ninja", "-S", project, "-B", build, "-DQUIRE_CUDA=OFF")
        targets = output_of("ninja", "-C", build, "-t", "targets", "all")
        self.assertIn("libquire.so", targets)
        built = set(re.findall(r"^_deps/quire-build/\S*?([\w.]+): ", targets, re.MULTILINE))
        self.assertIn("libquire_engine.a", built)
        self.assertNotIn("quire", built)
        self.assertFalse({name for name in built if re.search(r"_(test|bench)$|^example_|^libquire_(server|cli|http)", name)})
        self.assertIn("libquire.so", output_of("ninja", "-C", build, "-t", "inputs", "program"))
        self.assertNotIn("include/quire", (build / "_deps/quire-build/cmake_install.cmake").read_text())


if __name__ == "__main__":
    unittest.main()
