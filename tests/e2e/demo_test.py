"""What scripts/demo.sh builds on machines with and without GPUs and a CUDA toolkit: fakes in the path say which."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from support import SOURCE_DIR

SCRIPTS = SOURCE_DIR / "scripts"
OFF = ["-DQUIRE_CUDA=OFF"]


def write_program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = pathlib.Path(folder.name)
        write_program(self.bin / "nvcc", "exit 0\n")

    def options(self, gpus, nvcc="nvcc"):
        """The options, and what is said, on a machine with these lines of nvidia-smi; None: it finds no driver."""
        answer = "exit 9" if gpus is None else "cat <<END\n" + "\n".join(gpus) + "\nEND"
        write_program(self.bin / "nvidia-smi", answer + "\n")
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CUDACXX": str(self.bin / nvcc)}
        result = subprocess.run([SCRIPTS / "gpu_options.sh"], env=environment, capture_output=True, encoding="utf-8",
                                check=True)
        return result.stdout.splitlines(), result.stderr

    def test_without_a_gpu_no_time_goes_to_cuda(self):
        self.assertEqual(self.options(None), (OFF, ""))
        self.assertEqual(self.options([]), (OFF, ""))

    def test_gpu_code_is_for_this_machine_only(self):
        for gpus, architectures in ((["NVIDIA H200, 9.0"], "90a-real"),
                                    (["NVIDIA H200, 9.0", "NVIDIA H200, 9.0"], "90a-real"),
                                    (["NVIDIA A100-SXM4-80GB, 8.0"], "80-real"),
                                    (["NVIDIA A100-SXM4-80GB, 8.0", "NVIDIA H100 PCIe, 9.0"], "80-real;90a-real"),
                                    (["NVIDIA B200, 10.0"], "90-virtual;90a-real")):
            options, said = self.options(gpus)
            self.assertEqual(options, ["-DQUIRE_CUDA=AUTO", f"-DQUIRE_CUDA_ARCHITECTURES={architectures}"])
            self.assertEqual(said, "")

    def test_says_why_a_gpu_is_not_used(self):
        for gpus, nvcc, reason in ((["NVIDIA H200, 9.0"], "nowhere", "no CUDA toolkit"),
                                   (["Tesla V100-SXM2-16GB, 7.0"], "nvcc", "needs 8.0"),
                                   (["NVIDIA H200, [N/A]"], "nvcc", "no compute capability")):
            options, said = self.options(gpus, nvcc)
            self.assertEqual(options, OFF)
            self.assertIn(reason, said)
            self.assertIn(gpus[0].split(",")[0], said)

    def test_an_old_gpu_does_not_keep_quire_from_the_others(self):
        for gpus in (["Tesla V100-SXM2-16GB, 7.0", "NVIDIA H200, 9.0"], ["NVIDIA H200, 9.0", "Tesla V100-SXM2-16GB, 7.0"]):
            options, said = self.options(gpus)
            self.assertEqual(options, ["-DQUIRE_CUDA=AUTO", "-DQUIRE_CUDA_ARCHITECTURES=90a-real"])
            self.assertEqual(said, "The Tesla V100-SXM2-16GB has compute capability 7.0 and quire's GPU code needs 8.0: "
                                   "quire is built for the other GPUs.\n")
        options, said = self.options(["GeForce GTX 1080, 6.1", "Tesla V100-SXM2-16GB, 7.0"])
        self.assertEqual(options, OFF)
        for gpu in ("GeForce GTX 1080", "Tesla V100-SXM2-16GB"):
            self.assertIn(gpu, said)
        self.assertEqual(said.count("built for the CPU"), 2)

    def test_what_the_gpus_need_can_be_configured(self):
        """cmake/QuireCudaArchitectures.cmake takes the lists."""
        check = SOURCE_DIR / "cmake" / "QuireCudaArchitectures.cmake"
        for gpu in ("8.0", "8.9", "9.0", "10.0", "12.0"):
            options, _ = self.options([f"NVIDIA GPU, {gpu}"])
            list_ = options[1].split("=")[1]
            script = self.bin / "check.cmake"
            script.write_text(f'set(QUIRE_CUDA_ARCHITECTURES "{list_}")\ninclude({check})\n'
                              "quire_check_cuda_architectures(${QUIRE_CUDA_ARCHITECTURES})\n")
            subprocess.run(["cmake", "-P", script], check=True, capture_output=True)

    def test_builds_with_these_options_in_a_folder_of_its_own(self):
        """The script itself, in a copy where setup, build and quire are fakes that say how they were called."""
        root = self.bin / "copy"
        (root / "scripts").mkdir(parents=True)
        for name in ("demo.sh", "gpu_options.sh"):
            (root / "scripts" / name).write_bytes((SCRIPTS / name).read_bytes())
            (root / "scripts" / name).chmod(0o755)
        write_program(root / "scripts" / "setup.sh", "")
        write_program(root / "scripts" / "build.sh", 'echo "build: $*"\n')
        (root / "build" / "demo" / "src").mkdir(parents=True)
        plan = '{"device_name": "NVIDIA H200", "device_note": ""}'
        write_program(root / "build" / "demo" / "src" / "quire",
                      f"[ $1 = plan ] && echo '{plan}' || echo \"quire: $*\"\n")
        write_program(self.bin / "nvidia-smi", "echo NVIDIA H200, 9.0\n")
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CUDACXX": str(self.bin / "nvcc")}
        result = subprocess.run([root / "scripts" / "demo.sh"], env=environment, capture_output=True, encoding="utf-8",
                                check=True)
        self.assertIn("build: demo quire_runtime -- -DQUIRE_CUDA=AUTO -DQUIRE_CUDA_ARCHITECTURES=90a-real\n", result.stdout)
        self.assertIn("> define apple\nquire: generate --chat --temperature 0 -p define apple\n", result.stdout)
        self.assertIn("These answers were made on NVIDIA H200.\n", result.stdout)
        self.assertEqual(result.stderr, "")


if __name__ == "__main__":
    unittest.main()
