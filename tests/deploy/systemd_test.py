"""The systemd unit: read by systemd itself, and how much it leaves open."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support

UNIT = support.DEPLOY / "quire.service"
# systemd rates from 0, "safe", to 10. What is left is the network, which a server needs.
MAX_EXPOSURE = 2.0


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("systemd-analyze"):
            raise unittest.SkipTest("systemd-analyze is not installed")

    def analyze(self, *arguments):
        return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True,
                              encoding="utf-8", check=False)

    def test_verify(self):
        binary = os.environ.get("QUIRE_BINARY") or shutil.which("true")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / UNIT.name
            text = UNIT.read_text(encoding="utf-8")
            self.assertIn("\nExecStart=/usr/bin/quire serve", text)
            unit.write_text(re.sub(r"(?m)^ExecStart=/usr/bin/quire", f"ExecStart={binary}", text),
                            encoding="utf-8")
            result = self.analyze("verify", "--man=no", unit)
            about_quire = [line for line in result.stderr.splitlines() if "quire" in line]
            self.assertEqual((result.returncode, about_quire), (0, []))

            unit.write_text(unit.read_text(encoding="utf-8").replace("TimeoutStopSec=", "TimoutStopSec="),
                            encoding="utf-8")
            self.assertIn("TimoutStopSec", self.analyze("verify", "--man=no", unit).stderr)

    def test_verify_with_gpus(self):
        binary = os.environ.get("QUIRE_BINARY") or shutil.which("true")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / UNIT.name
            unit.write_text(re.sub(r"(?m)^ExecStart=/usr/bin/quire", f"ExecStart={binary}",
                                   UNIT.read_text(encoding="utf-8")), encoding="utf-8")
            addition = unit.with_name(unit.name + ".d") / "gpu.conf"
            addition.parent.mkdir()
            # Who has no driver has no such program either.
            text = re.sub(r"(?m)^(ExecStartPre=[+-]*)\S+", rf"\1{shutil.which('true')}",
                          (support.DEPLOY / "quire-gpu.conf").read_text(encoding="utf-8"))
            for added, expected in ((text, False), (text + "\nDeviceAlow=char-nvidia* rw\n", True)):
                addition.write_text(added, encoding="utf-8")
                result = self.analyze("verify", "--man=no", unit)
                about_quire = [line for line in result.stderr.splitlines() if "quire" in line]
                self.assertEqual(result.returncode, 0)
                self.assertEqual(any("DeviceAlow" in line for line in about_quire), expected, about_quire)
                self.assertEqual(len(about_quire), int(expected), about_quire)

    def test_exposure(self):
        result = self.analyze("security", "--offline=yes", f"--threshold={int(MAX_EXPOSURE * 10)}", UNIT)
        self.assertEqual(result.returncode, 0, result.stdout[-300:])
        exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
        self.assertLessEqual(float(exposure.group(1)), MAX_EXPOSURE)


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        unit = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
        unit.optionxform = str
        unit.read(UNIT, encoding="utf-8")
        cls.service = unit["Service"]

    def test_stopping_takes_longer_than_the_shutdown(self):
        self.assertGreaterEqual(int(self.service["TimeoutStopSec"]),
                                support.DEFAULT_SHUTDOWN_TIMEOUT_S + support.LAST_WAIT_S)

    def test_restarts(self):
        self.assertEqual(self.service["Restart"], "on-failure")

    def test_is_nobody(self):
        self.assertEqual(self.service["DynamicUser"], "yes")
        self.assertEqual(self.service["CapabilityBoundingSet"], "")


if __name__ == "__main__":
    unittest.main()
