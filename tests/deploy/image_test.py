"""The Dockerfile: what can be told without building it."""

import re
import unittest

import support

DOCKERFILE = support.DEPLOY / "Dockerfile"


def instructions(text):
    """(name, arguments) of each instruction, continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text)
    text = re.sub(r"\\\n\s*", " ", text)
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.instructions = instructions(DOCKERFILE.read_text(encoding="utf-8"))
        starts = [i for i, (name, _) in enumerate(cls.instructions) if name == "FROM"]
        cls.stages = [dict(cls.instructions[start:end])
                      for start, end in zip(starts, starts[1:] + [len(cls.instructions)])]

    def test_stages(self):
        self.assertEqual([stage["FROM"] for stage in self.stages],
                         ["${BASE} AS build", "scratch"])
        self.assertIn(("ARG", "BASE=debian:bookworm-slim"), self.instructions)
        self.assertIn(("ARG", "CUDA=OFF"), self.instructions)

    def test_runs_as_nobody_special(self):
        self.assertRegex(self.stages[-1]["USER"], r"^[1-9]\d+:[1-9]\d+$")

    def test_health(self):
        self.assertIn("/health", self.stages[-1]["HEALTHCHECK"])
        self.assertIn("http://127.0.0.1:8000/health", self.stages[-1]["HEALTHCHECK"])

    def test_entry_point(self):
        self.assertEqual(self.stages[-1]["ENTRYPOINT"],
                         '["quire", "serve", "--host", "0.0.0.0", "--port", "8000"]')
        self.assertEqual(self.stages[-1]["EXPOSE"], "8000")
        self.assertEqual(self.stages[-1]["STOPSIGNAL"], "SIGTERM")

    def test_what_it_copies_is_there(self):
        for name, arguments in self.instructions:
            if name == "COPY":
                *sources, _ = arguments.split()
                if sources[0].startswith("--from="):
                    continue
                for source in sources:
                    self.assertTrue((support.SOURCE_DIR / source).exists(), source)

    def test_cmake_options_are_known(self):
        known = "".join((support.SOURCE_DIR / file).read_text(encoding="utf-8")
                        for file in ("CMakeLists.txt", "cmake/QuireCuda.cmake"))
        for option in re.findall(r"-D(QUIRE_\w+)=", DOCKERFILE.read_text(encoding="utf-8")):
            self.assertRegex(known, rf"(?m)^(option|set)\({option} ")

    def test_what_is_built_is_not_sent_along(self):
        ignored = (support.DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
        self.assertIn("build", ignored)
        self.assertIn(".git", ignored)


if __name__ == "__main__":
    unittest.main()
