"""quire tune, and the files that it writes, on simulated GPUs (tests/simulated_gpu)."""

import errno
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from support import BINARY, SOURCE_DIR, TIMEOUT_S, CliTest, gpus, lexicon_config, run

PROMPT = ("generate", "--chat", "--temperature", "0", "-p", "define apple")
PRODUCTS = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"]
ROWS = ("--rows", "64,96,4K")
ALGORITHM = {"id": 66, "tile": 20, "stages": 36, "split_k": 1, "reduction": 0, "swizzle": 0, "custom": 0,
             "inner_shape": 0, "cluster_shape": 0}


def lexicon_layers():
    return json.loads(lexicon_config())["num_hidden_layers"]


class TuneTest(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "tuned.json"

    def tuned(self, *arguments, **settings):
        """The file that `quire tune` writes."""
        self.assert_ok(run("tune", *ROWS, "--output", self.file, *arguments, env=gpus(**settings)))
        return json.loads(self.file.read_text())

    def edited(self, edit):
        """A file like tuned(), changed by `edit`."""
        file = self.tuned()
        edit(file)
        self.file.write_text(json.dumps(file))
        return self.file


class Report(TuneTest):
    def test_the_table_has_every_product(self):
        result = run("tune", env=gpus())
        self.assert_ok(result)
        self.assertIn("Simulated GPU", result.stdout)
        self.assertIn("compute capability 9.0, 16 multiprocessors", result.stdout)
        for name in PRODUCTS:
            self.assertRegex(result.stdout, rf"\n +{name} +\d+ x \d+ +64 +[\d.]+ us")
        # What is better by an eighth is taken, what is by a hundredth is not.
        self.assertEqual(set(re.findall(r" us +(-|[\d.]+ %)  +\d+ %", result.stdout)), {"-", "12.5 %"})
        self.assertRegex(result.stdout, r"\n\d+ of 57 shapes have a faster algorithm")

    def test_json(self):
        result = run("tune", *ROWS, "--json", env=gpus())
        self.assert_ok(result)
        report = json.loads(result.stdout)
        self.assertEqual((report["device_name"], report["compute_capability"], report["num_multiprocessors"],
                          report["is_complete"]), ("Simulated GPU", 90, 16, True))
        self.assertEqual(list(dict.fromkeys(product["name"] for product in report["products"])), PRODUCTS)
        for product in report["products"]:
            self.assertIn(product["choice"], (0, 4))
            self.assertLessEqual(product["best_us"], product["first_us"])
            self.assertEqual(product["saved"] > 0, product["choice"] > 0)
            self.assertTrue(0 < product["share_of_limit"] < 1.001)
        gated = [product["rows"] for product in report["products"] if product["name"] == "gate_up_proj"]
        self.assertEqual(gated, [64, 96, 2048])  # what cuBLAS gets of 4,096 at once
        logits = [product for product in report["products"] if product["name"] == "lm_head"]
        self.assertEqual([product["rows"] for product in logits], [64, 96])  # as sequences in a step
        self.assertEqual(logits[0]["out_dtype"], "float32")

    def test_ranks_have_their_share(self):
        def shapes(*arguments):
            report = json.loads(run("tune", "--rows", "64", "--json", *arguments, env=gpus()).stdout)
            return {product["name"]: (product["n"], product["k"]) for product in report["products"]}

        whole, half = shapes(), shapes("--tensor-parallel-size", "2")
        self.assertEqual(half["down_proj"], (whole["down_proj"][0], whole["down_proj"][1] // 2))
        self.assertEqual(half["lm_head"], (whole["lm_head"][0] // 2, whole["lm_head"][1]))

    def test_algorithms_and_rows_to_choose(self):
        report = json.loads(run("tune", "--rows", "64", "--algorithms", "2", "--json", env=gpus()).stdout)
        self.assertEqual({product["num_algorithms"] for product in report["products"]}, {2})
        result = run("tune", "--rows", "4", env=gpus())
        self.assert_error(result, 1, "quire's own kernels take them all", "--rows")
        result = run("tune", "--rows", "8K,32K", "--max-num-batched-tokens", "4096", env=gpus())
        self.assert_error(result, 1, "has at most 4096 rows", "--max-num-batched-tokens")
        result = run("tune", "--rows", "4,8K", "--max-num-batched-tokens", "4096", env=gpus())
        self.assert_error(result, 1, "quire's own kernels take them all", "up to the 4096 of a step")

    def test_the_largest_step_is_timed(self):
        report = json.loads(run("tune", "--json", "--max-num-batched-tokens", "20000", "--max-num-seqs", "40",
                                env=gpus()).stdout)
        rows = {name: [product["rows"] for product in report["products"] if product["name"] == name]
                for name in PRODUCTS}
        self.assertEqual(rows["qkv_proj"][:2], [40, 64])
        self.assertEqual(rows["qkv_proj"][-2:], [16384, 20000])
        self.assertEqual(rows["lm_head"], [40])

    def test_needs_a_gpu(self):
        for env, why in ((gpus(0), "CUDA finds no GPU"), ({"QUIRE_CUDA_LIBRARY": ""}, "turns the CUDA backend off")):
            self.assert_error(run("tune", env=env), 1, "Matrix products are timed on a GPU", why)

    def test_too_little_memory(self):
        self.assert_error(run("tune", env=gpus(gpu_memory=100 * 10**6)), 1, "hardly less with other --rows",
                          "end what else is on the GPU")
        result = run("tune", "--rows", "1M", "--max-num-batched-tokens", "2M", env=gpus())
        self.assert_error(result, 1, "GiB are free; choose smaller --rows")
        result = run("tune", env=gpus(fault="0:reserve:1"))
        self.assert_error(result, 1, "another program took some of that just now; end it")
        self.assertNotIn("--gpu-memory-utilization", result.stderr)


class Files(TuneTest):
    def test_a_file_serves_every_command(self):
        file = self.tuned()
        self.assertEqual(file["made_with"].split(" on ")[1], "Simulated GPU")
        entries = file["linear_algorithms"]
        self.assertIn(None, [entry["algorithm"] for entry in entries])
        self.assertIn(24, [entry["algorithm"]["tile"] for entry in entries if entry["algorithm"]])
        expected = run(*PROMPT, env=gpus())
        result = run(*PROMPT, "--linear-algorithms", self.file, env=gpus())
        self.assert_ok(result)
        self.assertEqual(result.stdout, expected.stdout)
        self.assert_ok(run(*PROMPT, "--linear-algorithms", self.file, "--tensor-parallel-size", "2", env=gpus(2)))

    def test_a_file_reaches_the_kernels(self):
        # Some rows that an entry serves, in a step of their own. cuBLAS gets four products of each layer.
        prompt = ("generate", "--max-tokens", "2", "--enforce-eager", "-p", " apple" * 40)
        num_products = 4 * lexicon_layers()
        for algorithm, number, is_reached in (
                (ALGORITHM, num_products, True), (ALGORITHM, num_products + 1, False), (None, 1, False)):
            path = self.edited(lambda file, algorithm=algorithm: [
                entry.update(algorithm=algorithm) for entry in file["linear_algorithms"]])
            result = run(*prompt, "--linear-algorithms", path, env=gpus(fault=f"0:linear_by_table:{number}"))
            with self.subTest(algorithm=algorithm, number=number):
                if is_reached:
                    self.assert_error(result, 1, "in linear_by_table")
                else:
                    self.assert_ok(result)

    def test_a_file_for_other_matrices_is_noted(self):
        path = self.edited(lambda file: [entry.update(n=entry["n"] + 8) for entry in file["linear_algorithms"]])
        note = (f"{path} has nothing for this model's matrix products in bfloat16 with --tensor-parallel-size 1; "
                "'quire tune MODEL --output FILE' makes a file that has.")
        result = run(*PROMPT, "--linear-algorithms", path, env=gpus())
        self.assertEqual((result.returncode, result.stderr), (0, f"quire: {note}\n"))
        plan = run("plan", "--json", "--linear-algorithms", path, env=gpus())
        self.assertEqual(json.loads(plan.stdout)["device_note"], note)

    def test_more_than_a_file_holds(self):
        def entry(rows):
            return {"compute_capability": 80, "multiprocessors": 1, "dtype": "float16", "out_dtype": "float16", "n": 8,
                    "k": 8, "rows": rows, "algorithm": None}

        self.file.write_text(json.dumps({"linear_algorithms": [entry(rows) for rows in range(1, 65537)]}))
        output = self.folder / "more.json"
        result = run("tune", *ROWS, "--linear-algorithms", self.file, "--output", output, env=gpus())
        self.assert_error(result, 1, "65536 of them from --linear-algorithms", "a file holds at most 65536")
        self.assertFalse(output.exists())

    def test_another_models_choices_stay(self):
        one = self.tuned()["linear_algorithms"]
        both = self.tuned("--linear-algorithms", self.file, "--tensor-parallel-size", "2")["linear_algorithms"]
        for entry in one:
            self.assertIn(entry, both)
        self.assertGreater(len(both), len(one))
        self.assertEqual(self.tuned("--linear-algorithms", self.file)["linear_algorithms"], both)

    def test_tuning_in_place_keeps_other_rows(self):
        def without(entries, rows):
            return [entry for entry in entries if entry["rows"] != rows]

        before = self.tuned()["linear_algorithms"]
        self.assert_ok(run("tune", "--rows", "96", "--algorithms", "1", "--linear-algorithms", self.file, "--output",
                           self.file, env=gpus()))
        after = json.loads(self.file.read_text())["linear_algorithms"]
        self.assertEqual(without(after, 96), without(before, 96))
        self.assertEqual([entry["algorithm"] for entry in after if entry["rows"] == 96], [None] * len(PRODUCTS))

    def test_files_that_cannot_be_used(self):
        def first(file):
            return file["linear_algorithms"][0]

        cases = ((lambda file: first(file).update(n=0), "entry 1 of linear_algorithms: the field n is 0; expected"),
                 (lambda file: first(file).pop("k"), "entry 1 of linear_algorithms has no field k"),
                 (lambda file: first(file).update(note=1), 'has a field "note"'),
                 (lambda file: first(file).update(dtype="int4"), 'the field dtype is "int4"; expected "float32"'),
                 (lambda file: file["linear_algorithms"].append(first(file)), "as one before it"),
                 (lambda file: file.update(linear_algorithms=[]), "the file is for no GPU"),
                 (lambda file: file.pop("linear_algorithms"), "has no field linear_algorithms"))
        for edit, fragment in cases:
            with self.subTest(fragment=fragment):
                path = self.edited(edit)
                self.assert_error(run(*PROMPT, "--linear-algorithms", path, env=gpus()), 1, str(path), fragment)
        self.file.write_text("{")
        self.assert_error(run("plan", "--linear-algorithms", self.file, env=gpus()), 1, str(self.file), "not valid JSON")
        self.assert_error(run("plan", "--linear-algorithms", self.folder / "none", env=gpus()), 1, "none")

    def test_a_file_of_another_gpu(self):
        self.tuned(capability=80)
        result = run(*PROMPT, "--linear-algorithms", self.file, env=gpus())
        self.assert_error(result, 1, "is for compute capability 8.0 with 16 multiprocessors",
                          "this GPU (Simulated GPU) is of compute capability 9.0", "quire tune MODEL --output")
        # One file can hold both.
        self.tuned("--linear-algorithms", self.file)
        for capability in (80, 90):
            self.assert_ok(run(*PROMPT, "--linear-algorithms", self.file, env=gpus(capability=capability)))

    def test_the_file_is_there_though_nobody_reads_the_report(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer) as stdout:
            subprocess.run([BINARY, "tune", *ROWS, "--output", self.file], env={**os.environ, **gpus()},
                           stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S,
                           check=False)
        self.assertGreater(len(json.loads(self.file.read_text())["linear_algorithms"]), 0)
        self.assertEqual(os.listdir(self.folder), [self.file.name])

    def test_a_failure_leaves_the_file_as_it_was(self):
        before = self.tuned()
        result = run("tune", "--output", self.file, env=gpus(fault="0:try_linear_algorithms:5"))
        self.assert_error(result, 1, "CUDA failed", "illegal memory access")
        self.assertEqual(json.loads(self.file.read_text()), before)
        self.assertEqual(os.listdir(self.folder), [self.file.name])
        self.assert_error(run("tune", "--output", self.folder / "no" / "x", env=gpus()), 1, "--output", "No such file")

    def test_a_file_becomes_a_table_of_the_source(self):
        entries = self.tuned()["linear_algorithms"]
        script = SOURCE_DIR / "scripts" / "linear_algorithms_table.py"
        table = self.folder / "table.cc"
        if shutil.which("clang-format-14") is None:
            self.skipTest("clang-format-14 is not there")
        subprocess.run([script, "--output", table, self.file], check=True)
        self.assertEqual(table.read_text().count("LinearAlgorithmEntry{"), len(entries))
        self.assertIn("{{90, 16}, DType::kBFloat16, DType::kFloat32, ", table.read_text())
        # In the order of quire's types, which is not that of their names.
        more = [{**entries[0], "dtype": dtype, "out_dtype": dtype} for dtype in ("float16", "bfloat16", "float32")]
        self.file.write_text(json.dumps({"linear_algorithms": more}))
        subprocess.run([script, "--output", table, self.file], check=True)
        self.assertEqual(re.findall(r"DType::(\w+), DType::\w+", table.read_text()),
                         ["kFloat32", "kBFloat16", "kFloat16"])


class Screen:
    """A terminal that a process writes to, read all along so that the process never waits for that."""

    def __init__(self):
        self.leader, self.follower = pty.openpty()
        self.text = b""
        self.has_ended = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)

    def read(self):
        while not self.has_ended:
            try:
                data = os.read(self.leader, 4096)
            except OSError:  # nobody writes to it any more
                data = b""
            with self.changed:
                self.text += data
                self.has_ended = not data
                self.changed.notify_all()

    def wait_for(self, text):
        with self.changed:
            self.changed.wait_for(lambda: text in self.text or self.has_ended, TIMEOUT_S)
            return text in self.text

    def close(self):
        """Everything that was written, when the process has ended."""
        self.reader.join(TIMEOUT_S)
        os.close(self.leader)
        return self.text


class Interrupted(TuneTest):
    HINT = b"quire: ends after this shape; Ctrl-C again ends at once"

    def start(self):
        """quire tune, and its terminal; it waits at the second shape until release()."""
        self.fifo = self.folder / "hold"
        os.mkfifo(self.fifo)
        screen = Screen()
        # The first run is that of the GPU's limits.
        env = gpus(hold="0:try_linear_algorithms:3", hold_fifo=self.fifo)
        process = subprocess.Popen([BINARY, "tune", "--json", "--output", self.file], env={**os.environ, **env},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=screen.follower)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        os.close(screen.follower)
        screen.reader.start()
        self.hold = None
        while self.hold is None:
            self.assertIsNone(process.poll())
            try:
                self.hold = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:  # the process does not read it yet
                self.assertEqual(error.errno, errno.ENXIO)
                time.sleep(0.01)
        return process, screen

    def release(self):
        os.close(self.hold)
        os.remove(self.fifo)

    def test_what_was_measured_is_printed_and_written(self):
        process, screen = self.start()
        process.send_signal(signal.SIGINT)
        self.assertTrue(screen.wait_for(self.HINT))
        self.release()
        stdout, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 130)
        self.assertTrue(screen.close().endswith(b"\r\x1b[K" + self.HINT + b"\r\n"))
        report = json.loads(stdout)
        self.assertFalse(report["is_complete"])
        self.assertEqual([product["rows"] for product in report["products"]], [64, 96])
        written = json.loads(self.file.read_text())["linear_algorithms"]
        self.assertEqual(sorted(entry["rows"] for entry in written), [64, 96])
        self.assertEqual(os.listdir(self.folder), [self.file.name])
        self.assert_ok(run(*PROMPT, "--linear-algorithms", self.file, env=gpus()))

    def test_what_ends_it_at_once_leaves_nothing(self):
        for signals, code in (((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGTERM,), -signal.SIGTERM),
                              ((signal.SIGHUP,), -signal.SIGHUP)):
            with self.subTest(signals=signals):
                process, screen = self.start()
                process.send_signal(signals[0])
                for number in signals[1:]:
                    self.assertTrue(screen.wait_for(self.HINT))
                    process.send_signal(number)
                stdout, _ = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual((process.returncode, stdout), (code, b""))
                text = screen.close()
                if code == 130:
                    self.assertTrue(text.endswith(b"\r\x1b[K" + self.HINT + b"\r\n"), text)
                self.release()
                self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
