"""A model's ranks on several hosts: network namespaces that cables join, started by hand and by mpirun."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from nodes_support import SMALL, Process, group, serving
from support import BINARY, CPU, CliTest, PROMPTS, generate, json_lines

SECRET = {"QUIRE_GROUP_SECRET": "0123456789abcdef0123"}
INSIDE = "QUIRE_TEST_IS_HOST_0"


def command(*arguments):
    subprocess.run([str(argument) for argument in arguments], check=True)


class Hosts:
    """Host 0 is where the test runs. Each other one has a cable to it, with the addresses 10.77.N.1 and 10.77.N.2."""

    def __init__(self, count):
        command("ip", "link", "set", "lo", "up")
        self.others = []
        try:
            for number in range(1, count):
                self.add(number)
        except BaseException:
            self.end()
            raise

    def add(self, number):
        host = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname host{number}; echo up; exec sleep 3600"],
                                stdout=subprocess.PIPE)
        self.others.append(host)
        assert host.stdout.readline() == b"up\n"
        command("ip", "link", "add", f"cable{number}", "type", "veth", "peer", "name", "cable", "netns", host.pid)
        command("ip", "address", "add", f"10.77.{number}.1/24", "dev", f"cable{number}")
        command("ip", "link", "set", f"cable{number}", "up")
        for line in ("ip link set lo up", f"ip address add 10.77.{number}.2/24 dev cable", "ip link set cable up",
                     f"ip route add default via 10.77.{number}.1"):
            command(*self.enter(number), *line.split())

    def enter(self, number):
        return ["nsenter", "-t", str(self.others[number - 1].pid), "--net", "--uts"] if number else []

    def commands(self):
        return [self.enter(number) for number in range(len(self.others) + 1)]

    def end(self):
        # The last process in a namespace takes its cable with it; until then the name is in use.
        for number in range(1, len(self.others) + 1):
            subprocess.run(["ip", "link", "delete", f"cable{number}"], check=False, stderr=subprocess.DEVNULL)
        for host in self.others:
            host.kill()
            host.wait()
            host.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def over(hosts):
    """Options of a group with a node on each host."""
    return {"nodes": len(hosts.others) + 1, "enter": hosts.commands(), "env": SECRET}


def with_address(threads=2):
    return (*SMALL[:SMALL.index("--threads")], "--threads", threads, "--master-addr", "10.77.1.1")


def asked(*more):
    prompts = [argument for prompt in PROMPTS for argument in ("-p", prompt)]
    return ("generate", "--temperature", 0, "--chat", "--json", "--max-tokens", 24, *prompts, *more)


class Answers(CliTest):
    def expected(self, tensor):
        result = generate("--max-tokens", 24, "--tensor-parallel-size", tensor, env=CPU)
        self.assert_ok(result)
        return json_lines(result.stdout)

    def test_are_those_of_one_process(self):
        for tensor, stages, count in ((2, 1, 2), (1, 2, 2), (1, 4, 2), (1, 4, 4), (2, 2, 4), (4, 1, 4)):
            with self.subTest(tensor=tensor, stages=stages, hosts=count), Hosts(count) as hosts, \
                    group(*asked(), tensor=tensor, stages=stages, options=with_address(threads=4), **over(hosts)) as made:
                output = made.nodes[0].process.stdout.read()
                self.assertEqual(made.wait(), [0] * count, [node.log for node in made.nodes])
                self.assertEqual(json_lines(output), self.expected(tensor))

    def test_over_a_slow_cable(self):
        with Hosts(2) as hosts:
            # Delay and losses where the kernel has them, else a cable of few bits a second.
            for discipline in ("netem delay 3ms loss 2%", "tbf rate 8mbit burst 16kb latency 200ms"):
                if subprocess.run(["tc", "qdisc", "add", "dev", "cable1", "root", *discipline.split()], check=False,
                                  stderr=subprocess.DEVNULL).returncode == 0:
                    break
            else:
                self.skipTest("this kernel slows no cable")
            with group(*asked(), tensor=2, options=with_address(), **over(hosts)) as made:
                output = made.nodes[0].process.stdout.read()
                self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
            self.assertEqual(json_lines(output), self.expected(2))

    def test_of_processes_that_mpirun_starts(self):
        if shutil.which("mpirun") is None:
            self.skipTest("Open MPI is not installed")
        with tempfile.TemporaryDirectory() as folder, Hosts(2) as hosts:
            agent = pathlib.Path(folder) / "agent"
            agent.write_text(f'#!/bin/sh\nshift\nexec {" ".join(hosts.enter(1))} sh -c "$*"\n')
            agent.chmod(0o755)
            launcher = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent),
                        "--mca", "oob_tcp_if_include", "10.77.1.0/24", "--host", "10.77.1.1:1,10.77.1.2:1",
                        "-x", "QUIRE_GROUP_SECRET", "-x", "QUIRE_CUDA_LIBRARY", BINARY)
            made = Process(*asked("--tensor-parallel-size", 2, *with_address(), "--master-port", 29871),
                           program=launcher, env=SECRET)
            try:
                output = made.process.stdout.read()
                self.assertEqual(made.wait(), 0, made.log)
            finally:
                made.kill()
            self.assertIn("node 1 runs its part", made.log)
            self.assertEqual(json_lines(output), self.expected(2))


class Ends(CliTest):
    """A host that can no longer be reached says nothing, not even that its connection is over."""

    def test_when_a_cable_is_pulled_under_a_stream(self):
        with Hosts(2) as hosts, serving(tensor=2, options=with_address(), **over(hosts)) as made:
            made.serving()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                made.nodes[1].process.send_signal(signal.SIGSTOP)
                stream = pool.submit(made.stream, {"prompt": "define apple", "max_tokens": 1500, "ignore_eos": True})
                made.wait_until_running()
                command("ip", "link", "set", "cable1", "down")
                made.nodes[1].process.send_signal(signal.SIGCONT)
                answer = stream.result()
            self.assertRegex(answer, "node 1 has (said nothing for 8 s|gone)")
            for number, lost in ((0, 1), (1, 0)):
                self.assertEqual(made.nodes[number].wait(), 1)
                self.assertRegex(made.nodes[number].log, f"node {lost} has (said nothing for 8 s|gone)")

    def test_when_a_cable_is_pulled_and_nothing_runs(self):
        with Hosts(3) as hosts, serving(stages=3, options=with_address(threads=3), **over(hosts)) as made:
            made.serving()
            command("ip", "link", "set", "cable2", "down")
            self.assertEqual(made.wait(), [1, 1, 1], [node.log for node in made.nodes])
            for number, lost in ((0, 2), (1, 2), (2, 0)):
                self.assertRegex(made.nodes[number].log, f"node {lost} has (said nothing for 8 s|gone)")


def enter_host_0():
    """Runs this program again as root of a network of its own; returns where that cannot be."""
    needed = ("unshare", "nsenter", "ip", "tc")
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    own = ["unshare", *root, "--net", "--uts"]
    if all(shutil.which(name) for name in needed) and subprocess.run(
            [*own, "ip", "link", "add", "type", "veth"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", [*own, sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_host_0()
        print("no network namespaces here: hosts are not tried")
        sys.exit(77)
    unittest.main()
