"""The systemd unit under a real systemd: process 1 of namespaces of its own, which nothing outlives.

It sees this machine's files read-only and knows no units but quire's. Takes root; skips itself where systemd does not
start.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import support

SYSTEMD = "/lib/systemd/systemd"
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
TOOLS = ("unshare", "nsenter", "systemctl", "ip", "curl")
PREFIX = "/opt"  # where systemd sees the installed quire
START_S = 60

if not os.path.exists(SYSTEMD) or not all(map(shutil.which, TOOLS)):
    support.skip(f"one of {', '.join((SYSTEMD, *TOOLS))} is not installed")
support.skip_without_root_and_build("a systemd of its own takes root",
                                    "there is no build of quire to install",
                                    "the unit's limits are not for sanitizers")

# Becomes systemd. What it writes is gone with its mounts.
BECOME_SYSTEMD = f"""set -e
mount --make-rprivate /
for group in "${{@:2}}"; do mount --bind "$group" "${{group%/*}}"; done
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir /run/units
cp "$1"/units/* /run/units/
mount --bind "$1"/usr {PREFIX}
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -o remount,bind,ro /
ip link set lo up
export container=lxc SYSTEMD_UNIT_PATH=/run/units
export SYSTEMD_GENERATOR_PATH=/nonexistent SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent
exec {SYSTEMD} --system --unit=multi-user.target
"""


class ControlGroup:
    """A group in each hierarchy, which systemd takes for the whole."""

    def __init__(self):
        mounts = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        hierarchies = [line.split()[1] for line in mounts if line.split()[2] in ("cgroup", "cgroup2")]
        self.folders = [pathlib.Path(hierarchy) / f"quire-test-{os.getpid()}" for hierarchy in hierarchies]
        for folder in self.folders:
            folder.mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1 leaves them empty
                if (folder / setting).exists() and (folder.parent / setting).exists():
                    (folder / setting).write_text((folder.parent / setting).read_text(encoding="ascii"),
                                                  encoding="ascii")

    def enter(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def remove(self):
        for folder in self.folders:
            for inner, _, _ in os.walk(folder, topdown=False):
                self.remove_empty(inner)

    @staticmethod
    def remove_empty(folder):
        deadline = time.monotonic() + START_S
        while True:
            try:
                return os.rmdir(folder)
            except OSError:  # the last of its processes is about to end
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run(["cmake", "--install", os.environ["QUIRE_BUILD_DIR"], "--prefix", cls.folder / "usr",
                        "--component", "Unspecified"], check=True, stdout=subprocess.DEVNULL)
        cls.write_units(cls.folder / "units")
        try:
            cls.start_systemd()
        except OSError as error:
            raise unittest.SkipTest(f"this machine lets nobody make groups for a systemd: {error}") from None
        if cls.process is None:
            raise unittest.SkipTest(f"systemd does not start here: {(cls.folder / 'log').read_text(encoding='utf-8')}")

    @staticmethod
    def write_units(units):
        units.mkdir()
        text = (support.DEPLOY / "quire.service").read_text(encoding="utf-8")
        text, count = re.subn(r"(?m)^ExecStart=/usr/bin/quire", f"ExecStart={PREFIX}/bin/quire", text)
        assert count == 1
        (units / "quire.service").write_text(text, encoding="utf-8")
        for name in ("sysinit", "basic", "multi-user", "network-online", "shutdown"):
            (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n", encoding="utf-8")

    @classmethod
    def start_systemd(cls):
        """Sets `process` to systemd's number on this machine, or None where there is none."""
        group = ControlGroup()
        cls.addClassCleanup(group.remove)
        with open(cls.folder / "log", "wb") as log:
            outer = subprocess.Popen(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", "bash", "-c", BECOME_SYSTEMD, "bash", cls.folder,
                 *group.folders],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=group.enter)
        cls.addClassCleanup(outer.wait)
        cls.addClassCleanup(outer.kill)
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        deadline = time.monotonic() + START_S
        cls.process = None
        while outer.poll() is None and time.monotonic() < deadline:
            child = children.read_text(encoding="ascii").strip()
            if child and cls.enter("systemctl", "show", "--property=Version", process=child).returncode == 0:
                cls.process = child
                return
            time.sleep(0.1)

    @classmethod
    def enter(cls, *command, process=None):
        return subprocess.run(["nsenter", "--target", process or cls.process, *NAMESPACES[:-1], *command],
                              capture_output=True, encoding="utf-8", check=False, timeout=START_S)

    def systemctl(self, *arguments):
        result = self.enter("systemctl", *arguments)
        self.assertEqual(result.returncode, 0, (arguments, result.stderr))

    def properties(self, *names):
        shown = self.enter("systemctl", "show", "quire", *(f"--property={name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in shown.splitlines())

    def wait_until_healthy(self):
        deadline = time.monotonic() + START_S
        while (answer := self.enter("curl", "-fsS", "http://127.0.0.1:8000/health")).returncode != 0:
            self.assertLess(time.monotonic(), deadline, self.enter("systemctl", "status", "quire").stdout)
            time.sleep(0.1)
        self.assertEqual(json.loads(answer.stdout), {"status": "ok"})

    def test_life_of_the_service(self):
        self.systemctl("start", "quire")
        self.wait_until_healthy()
        main = self.properties("MainPID")["MainPID"]
        status = self.enter("cat", f"/proc/{main}/status").stdout
        self.assertNotRegex(status, r"Uid:\t0\t")
        self.assertRegex(status, r"CapEff:\s0+\n")
        self.assertRegex(status, r"NoNewPrivs:\s1\n")
        self.assertRegex(status, r"Seccomp:\s2\n")
        body = json.dumps({"prompt": "define apple", "max_tokens": 3, "ignore_eos": True})
        answer = self.enter("curl", "-fsS", "-H", "Content-Type: application/json", "-d", body,
                            "http://127.0.0.1:8000/v1/completions")
        self.assertEqual(json.loads(answer.stdout)["usage"]["completion_tokens"], 3)

        self.systemctl("reload", "quire")
        self.wait_until_healthy()
        self.assertEqual(self.properties("MainPID", "NRestarts"), {"MainPID": main, "NRestarts": "0"})

        self.systemctl("kill", f"--signal={signal.SIGKILL.name}", "quire")
        deadline = time.monotonic() + START_S
        while self.properties("NRestarts")["NRestarts"] != "1":
            self.assertLess(time.monotonic(), deadline, "it is not started again")
            time.sleep(0.1)
        self.wait_until_healthy()

        self.systemctl("stop", "quire")
        self.assertEqual(self.properties("ActiveState", "Result", "ExecMainStatus"),
                         {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"})


if __name__ == "__main__":
    unittest.main()
