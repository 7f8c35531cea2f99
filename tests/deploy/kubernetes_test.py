"""The Kubernetes manifest: valid by the schemas of several versions, and right about the server."""

import subprocess
import unittest

import support

support.use_test_packages()

import yaml  # noqa: E402: a package of the tests

MANIFEST = support.DEPLOY / "kubernetes.yaml"
# The oldest that clusters still run, and the newest that the package knows.
VERSIONS = ("1.27", "1.30", "1.33", "1.37")


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        documents = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
        cls.kinds = {document["kind"]: document for document in documents}
        cls.pod = cls.kinds["Deployment"]["spec"]["template"]
        (cls.container,) = cls.pod["spec"]["containers"]

    def test_schemas(self):
        for version in VERSIONS:
            result = subprocess.run(
                [support.VENV / "bin" / "kubernetes-validate", "--strict", "-k", version, MANIFEST],
                capture_output=True, encoding="utf-8", check=False)
            self.assertEqual(result.returncode, 0, f"{version}: {result.stdout}{result.stderr}")

    def test_schemas_find_mistakes(self):
        broken = MANIFEST.read_text(encoding="utf-8").replace("livenessProbe:", "livenesProbe:")
        result = subprocess.run([support.VENV / "bin" / "kubernetes-validate", "--strict", "-"],
                                input=broken, capture_output=True, encoding="utf-8", check=False)
        self.assertNotEqual(result.returncode, 0)

    def test_selectors_match(self):
        labels = self.pod["metadata"]["labels"]
        self.assertEqual(self.kinds["Deployment"]["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(self.kinds["Service"]["spec"]["selector"], labels)

    def test_ports_match(self):
        (port,) = self.container["ports"]
        (served,) = self.kinds["Service"]["spec"]["ports"]
        self.assertEqual(served["targetPort"], port["name"])
        self.assertEqual(port["containerPort"], 8000)  # the image's entry point

    def test_probes(self):
        paths = {name: self.container[name]["httpGet"]["path"]
                 for name in ("startupProbe", "readinessProbe", "livenessProbe")}
        self.assertEqual(paths, {"startupProbe": "/ready", "readinessProbe": "/ready",
                                 "livenessProbe": "/health"})

    def test_grace_covers_the_shutdown(self):
        spec = self.pod["spec"]
        (timeout,) = [int(argument.split("=")[1]) for argument in self.container["args"]
                      if argument.startswith("--shutdown-timeout=")]
        sleep, seconds = self.container["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(sleep, "sleep")
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"],
                                int(seconds) + timeout + support.LAST_WAIT_S)

    def test_no_privileges(self):
        spec = self.pod["spec"]
        self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
        self.assertIs(spec["automountServiceAccountToken"], False)
        context = self.container["securityContext"]
        self.assertIs(context["allowPrivilegeEscalation"], False)
        self.assertIs(context["readOnlyRootFilesystem"], True)
        self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_the_key_file_is_mounted(self):
        (path,) = [argument.split("=")[1] for argument in self.container["args"]
                   if argument.startswith("--api-key-file=")]
        mounts = {mount["mountPath"]: mount["name"] for mount in self.container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in self.pod["spec"]["volumes"]}
        folder, name = path.rsplit("/", 1)
        self.assertEqual(volumes[mounts[folder]]["secret"]["secretName"], "quire-api-keys")
        self.assertIn(f"--from-file={name}=", MANIFEST.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
