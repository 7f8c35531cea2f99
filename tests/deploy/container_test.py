"""The image as deploy/Dockerfile makes it, built from this build of quire, and run without privileges.

Only the compilation is left out, which takes Debian's image from a registry. Takes podman and root, no daemon.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import support

MAX_IMAGE_BYTES = 80 << 20
MAX_CUDA_IMAGE_BYTES = 900 << 20  # of which cuBLAS is 540
BACKEND = pathlib.Path("src/libquire_cuda.so")  # in the build's folder
START_S = 60
COMPILED_STAGE = "COPY --from=build /image/ /"
# Limits that podman may set without the right to raise its own.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
RUNTIMES = ("crun", "runc")  # crun takes no mix of the two kinds of cgroups

if not shutil.which("podman") or not any(map(shutil.which, RUNTIMES)):
    support.skip(f"podman is not installed, or none of {', '.join(RUNTIMES)}")
support.skip_without_root_and_build("building the image's root takes root",
                                    "there is no build of quire to make an image of",
                                    "what the image holds is not sanitized")


def last_stage():
    """The Dockerfile's last stage, with the root taken from the folder `image` instead of the stage before."""
    text = (support.DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    stage = text[text.rindex("\nFROM "):]
    assert COMPILED_STAGE in stage, stage
    return stage.replace(COMPILED_STAGE, "COPY image/ /")


class Image(unittest.TestCase):
    """An image of some of quire's components."""

    @classmethod
    def build(cls, *components):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.storage = ["--root", cls.folder / "root", "--runroot", cls.folder / "run", "--storage-driver", "vfs"]
        cls.skip_unless_podman_builds()
        context = cls.folder / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(last_stage(), encoding="utf-8")
        for command in (
                *(["cmake", "--install", os.environ["QUIRE_BUILD_DIR"], "--prefix", cls.folder / "installed" / "usr",
                   "--component", component, "--strip"] for component in components),
                [support.DEPLOY / "image_root.sh", cls.folder / "installed" / "usr", context / "image"],
                ["podman", *cls.storage, "build", "--layers=false", "--format", "docker", "--tag", "quire", context]):
            result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
            assert result.returncode == 0, f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}"

    @classmethod
    def skip_unless_podman_builds(cls):
        """Some machines forbid what podman needs for any image, even one of a single file."""
        trial = cls.folder / "trial"
        trial.mkdir()
        (trial / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n", encoding="utf-8")
        result = subprocess.run(["podman", *cls.storage, "build", "--format", "docker", "--tag", "trial", trial],
                                capture_output=True, encoding="utf-8", check=False)
        if result.returncode != 0:
            raise unittest.SkipTest(f"podman builds no image on this machine: {result.stderr}")

    def podman(self, *arguments):
        return subprocess.run(["podman", *self.storage, *arguments], capture_output=True, encoding="utf-8", check=False,
                              timeout=START_S)

    def size(self):
        [image] = json.loads(self.podman("image", "inspect", "quire").stdout)
        return image["Size"]

    def start(self):
        """A container that nothing may be written in, without a network of its own; skips where podman starts none."""
        storage = self.storage
        for runtime in filter(shutil.which, RUNTIMES):
            self.storage = ["--runtime", shutil.which(runtime), *storage]
            result = self.podman("run", "--detach", "--network", "none", "--read-only", *LIMITS, "quire")
            if result.returncode == 0:
                container = result.stdout.strip()
                self.addCleanup(self.podman, "rm", "--force", "--time", "0", container)
                return container
            self.podman("rm", "--all", "--force")
        self.skipTest(f"podman starts no container on this machine: {result.stderr}")

    def wait_until_healthy(self, container):
        [image] = json.loads(self.podman("image", "inspect", "quire").stdout)
        kind, health = image["Healthcheck"]["Test"]
        self.assertEqual(kind, "CMD-SHELL")
        deadline = time.monotonic() + START_S
        while (answer := self.podman("exec", container, "sh", "-c", health)).returncode != 0:
            self.assertLess(time.monotonic(), deadline, (answer, self.podman("logs", container)))
            time.sleep(0.1)
        self.assertEqual(json.loads(answer.stdout), {"status": "ok"})


class Container(Image):
    @classmethod
    def setUpClass(cls):
        cls.build("Unspecified")

    def test_small(self):
        self.assertLessEqual(self.size(), MAX_IMAGE_BYTES)
        print(f"image: {self.size() / 1e6:.1f} MB")

    def test_says_what_it_holds(self):
        packages = list((self.folder / "context" / "image" / "var/lib/dpkg/status.d").iterdir())
        self.assertIn("libssl3", [package.name for package in packages])
        for package in packages:
            self.assertRegex(package.read_text(encoding="utf-8"), rf"(?m)\APackage: {re.escape(package.name)}$")
            notice = self.folder / "context" / "image" / "usr/share/doc" / package.name / "copyright"
            self.assertTrue(notice.exists(), notice)

    def test_serves_as_an_ordinary_user_on_a_read_only_root(self):
        container = self.start()
        self.wait_until_healthy(container)
        written = self.podman("exec", container, "sh", "-c", "echo x > /written")
        self.assertIn("Read-only file system", written.stderr)
        read = "while read -r line; do echo \"$line\"; done < /proc/1/status"
        status = self.podman("exec", container, "sh", "-c", read)
        self.assertIn("Uid:\t10001\t10001\t10001\t10001", status.stdout)
        self.assertRegex(status.stdout, r"CapEff:\s0+\n")
        self.assertEqual(self.podman("exec", container, "sleep", "0").returncode, 0)  # the manifest's preStop
        self.podman("stop", "--time", "45", container)
        self.assertEqual(self.podman("inspect", "--format", "{{.State.ExitCode}}", container).stdout.strip(), "0")


class CudaContainer(Image):
    """The image for GPUs, without one."""

    @classmethod
    def setUpClass(cls):
        if not (pathlib.Path(os.environ["QUIRE_BUILD_DIR"]) / BACKEND).exists():
            raise unittest.SkipTest("this build has no CUDA backend")
        cls.build("Unspecified", "cuda")

    def test_holds_what_the_backend_loads_and_serves_on_the_cpu_without_a_driver(self):
        self.assertLessEqual(self.size(), MAX_CUDA_IMAGE_BYTES)
        print(f"image for GPUs: {self.size() / 1e6:.1f} MB")
        container = self.start()
        self.wait_until_healthy(container)
        # Where a library that the backend loads were missing, the sentence would name that.
        refused = self.podman("exec", container, "quire", "generate", "--device", "cuda", "-p", "define apple")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("CUDA finds no GPU", refused.stderr)


if __name__ == "__main__":
    unittest.main()
