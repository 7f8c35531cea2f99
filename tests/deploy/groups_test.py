"""What starts a group of nodes: the LeaderWorkerSets and the Slurm script."""

import copy
import functools
import math
import operator
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import support

support.use_test_packages()

import jsonschema  # noqa: E402: a package of the tests
import yaml  # noqa: E402

SCRIPT = support.DEPLOY / "quire.sbatch"


def an_object(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


INT32 = {"type": "integer", "minimum": -2**31, "maximum": 2**31 - 1}
COUNT_OR_SHARE = {"anyOf": [INT32, {"type": "string", "pattern": r"^\d+%?$"}]}
# The resource leaderworkerset.x-k8s.io/v1 as its API reference documents it: fields, types and the words that they take.
# What a pod's template is, is left to Kubernetes' own schemas.
SCHEMA = an_object(
    required=("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "leaderworkerset.x-k8s.io/v1"},
    kind={"const": "LeaderWorkerSet"},
    metadata={"type": "object", "required": ["name"]},
    spec=an_object(
        required=("leaderWorkerTemplate",),
        replicas=INT32,
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        networkConfig=an_object(required=("subdomainPolicy",), subdomainPolicy={"enum": ["Shared", "UniquePerReplica"]}),
        rolloutStrategy=an_object(
            type={"enum": ["RollingUpdate"]},
            rollingUpdateConfiguration=an_object(
                partition=INT32, maxUnavailable=COUNT_OR_SHARE, maxSurge=COUNT_OR_SHARE)),
        leaderWorkerTemplate=an_object(
            required=("workerTemplate",),
            size={**INT32, "minimum": 1},
            restartPolicy={"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default"]},
            subGroupPolicy=an_object(subGroupPolicyType={"enum": ["LeaderWorker", "LeaderExcluded"]}, subGroupSize=INT32),
            leaderTemplate={"type": "object", "required": ["spec"]},
            workerTemplate={"type": "object", "required": ["spec"]})))
# What it sets in each container.
GIVEN = {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}
# What node 0 has of its own.
OF_NODE_0 = {"--api-key-file", "--shutdown-timeout", "--log-format", "--node-rank", "--master-addr"}
SLURM = {
    "scontrol": 'echo first.host; echo second.host',
    # Each task's command line, as quire would get it; then as if a node had been lost, and then as if it ended well.
    "srun": '''[ "$1" = --kill-on-bad-exit=1 ] || exit 3
shift
for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@" || exit 1; done
[ -e "$STATE/lost" ] || { touch "$STATE/lost"; exit 1; }''',
    "sleep": "",
    "quire": 'echo "${#QUIRE_GROUP_SECRET} $*" >> "$STATE/commands"',
}


class LeaderWorkerSet(unittest.TestCase):
    file = "leaderworkerset.yaml"

    @classmethod
    def setUpClass(cls):
        cls.group, *cls.others = yaml.safe_load_all((support.DEPLOY / cls.file).read_text(encoding="utf-8"))
        cls.service = cls.others[0]
        cls.template = cls.group["spec"]["leaderWorkerTemplate"]
        cls.pods = [cls.template["leaderTemplate"], cls.template["workerTemplate"]]
        cls.containers = [pod["spec"]["containers"][0] for pod in cls.pods]

    def test_schema_of_the_group(self):
        jsonschema.validate(self.group, SCHEMA)
        self.assertEqual(self.template["restartPolicy"], "RecreateGroupOnPodRestart")

    def test_schema_refuses_what_the_cluster_would(self):
        for path, wrong in (("spec.leaderWorkerTemplate.restartPolicy", "Always"), ("spec.replicas", "1"),
                            ("spec.leaderWorkerTemplate.size", 0), ("spec.leaderWorkerTemplate.sizes", 2),
                            ("spec.startupPolicy", "LeaderFirst"), ("apiVersion", "v1")):
            group = copy.deepcopy(self.group)
            *parents, name = path.split(".")
            functools.reduce(operator.getitem, parents, group)[name] = wrong
            with self.assertRaises(jsonschema.ValidationError, msg=path):
                jsonschema.validate(group, SCHEMA)

    def test_schemas_of_its_pods_and_service(self):
        pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "quire", **pod["metadata"]}, "spec": pod["spec"]}
                for pod in self.pods]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            yaml.safe_dump_all([*pods, *self.others], file)
            file.flush()
            for version in ("1.27", "1.37"):
                result = subprocess.run(
                    [support.VENV / "bin" / "kubernetes-validate", "--strict", "-k", version, file.name],
                    capture_output=True, encoding="utf-8", check=False)
                self.assertEqual(result.returncode, 0, f"{version}: {result.stdout}{result.stderr}")

    def test_settings_of_ranks_are_the_same(self):
        settings = [{option for option in container["args"] if option.split("=")[0] not in OF_NODE_0}
                    for container in self.containers]
        self.assertEqual(*settings)
        ranks = math.prod(int(option.split("=")[1]) for option in settings[0] if "-parallel-size=" in option)
        self.assertEqual(ranks % self.template["size"], 0)
        self.check_each_node(ranks // self.template["size"])

    def check_each_node(self, num_ranks):
        self.assertGreaterEqual(num_ranks, 1)

    def test_variables_are_set(self):
        for container in self.containers:
            known = GIVEN | {variable["name"] for variable in container["env"]}
            self.assertEqual(set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) - known, set())
            self.assertIn("QUIRE_GROUP_SECRET", known)

    def test_selector_is_the_leader(self):
        labels = [pod["metadata"]["labels"] for pod in self.pods]
        self.assertEqual(self.service["spec"]["selector"], labels[0])
        self.assertNotEqual(*labels)

    def test_grace_covers_the_shutdown(self):
        commands = [container["lifecycle"]["preStop"]["exec"]["command"] for container in self.containers]
        # All are told to stop at the same time, so that the group ends as one process does.
        self.assertEqual(*commands)
        sleep, seconds = commands[0]
        self.assertEqual(sleep, "sleep")
        for pod in self.pods:
            self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"],
                                    int(seconds) + support.DEFAULT_SHUTDOWN_TIMEOUT_S + 5)


class LeaderWorkerSetOnGpus(LeaderWorkerSet):
    file = "leaderworkerset-gpu.yaml"

    # A GPU for each rank of a pod.
    def check_each_node(self, num_ranks):
        for container in self.containers:
            self.assertEqual(int(container["resources"]["limits"]["nvidia.com/gpu"]), num_ranks)

    def test_only_its_pods_reach_what_is_not_the_api(self):
        policy = self.others[1]["spec"]
        name = {"app.kubernetes.io/name": self.pods[0]["metadata"]["labels"]["app.kubernetes.io/name"]}
        for pod in self.pods:
            self.assertEqual(pod["metadata"]["labels"]["app.kubernetes.io/name"], name["app.kubernetes.io/name"])
        self.assertEqual(policy["podSelector"]["matchLabels"], name)
        of_group, of_all = policy["ingress"]
        self.assertEqual(of_group, {"from": [{"podSelector": {"matchLabels": name}}]})
        self.assertEqual(of_all, {"ports": [{"port": "http"}]})


class Slurm(unittest.TestCase):
    def test_starts_the_group_and_starts_it_again(self):
        self.check_starts({}, "--tensor-parallel-size 2")

    def test_a_stage_is_the_gpus_of_a_host(self):
        self.check_starts({"SLURM_GPUS_ON_NODE": "8"},
                          "--device cuda --tensor-parallel-size 8 --pipeline-parallel-size 2")

    def check_starts(self, variables, ranks):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name, body in SLURM.items():
                (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
                (folder / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "STATE": str(folder),
                           "SLURM_JOB_NODELIST": "hosts", "SLURM_JOB_NUM_NODES": "2", **variables}
            result = subprocess.run(["bash", SCRIPT, "MODEL", "--dtype", "bfloat16"], env=environment,
                                    capture_output=True, encoding="utf-8", check=False, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
            self.assertIn("node 0 is on first.host", result.stdout)
            commands = (folder / "commands").read_text(encoding="utf-8").splitlines()
        both = [f"64 serve MODEL --dtype bfloat16 {ranks} --host 0.0.0.0 --port 8000 --nnodes 2 "
                f"--node-rank {node} --master-addr first.host" for node in (0, 1)]
        self.assertEqual(commands, both * 2)

    def test_needs_a_model(self):
        result = subprocess.run(["bash", SCRIPT], capture_output=True, encoding="utf-8", check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage:", result.stderr)


if __name__ == "__main__":
    unittest.main()
