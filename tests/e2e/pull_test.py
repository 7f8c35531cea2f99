"""quire pull, against a server that behaves like the Hugging Face hub."""

import json
import pathlib
import tempfile
import unittest

import gguf_model
from fake_hub import COMMIT
from pull_support import CONFIG, MODEL, NEEDED, WEIGHTS, PullTest
from support import CPU, LEXICON, SOURCE_DIR, TIMEOUT_S, run


class Healthy(PullTest):
    def test_takes_what_is_needed(self):
        result = self.pull()
        self.assert_pulled(result)
        self.assertIn(str(self.snapshot), result.stdout)
        self.assertIn("quire chat org/name", result.stdout)
        for name in NEEDED:
            self.assertRegex(result.stderr, rf"(?m)^{name}  \d+")
        self.assertEqual(list((self.folder / "blobs").glob("*.incomplete")), [])
        self.assertTrue((self.cache / ".locks/models--org--name").is_dir())

    def test_once_more_takes_one_request(self):
        self.assert_pulled(self.pull())
        self.hub.requests.clear()
        result = self.pull()
        self.assert_ok(result)
        self.assertIn("already complete", result.stdout)
        self.assertEqual(len(self.hub.requests), 1)

    def test_json(self):
        result = self.pull("--json")
        self.assert_ok(result)
        answer = json.loads(result.stdout)
        self.assertEqual((answer["path"], answer["commit"]), (str(self.snapshot), COMMIT))
        self.assertEqual({file["name"]: file["bytes"] for file in answer["files"]},
                         {name: len(MODEL[name]) for name in NEEDED})
        self.assertEqual(answer["bytes"], sum(len(MODEL[name]) for name in NEEDED))
        self.assertTrue(all(file["downloaded"] for file in answer["files"]))
        self.assertFalse(answer["was_complete"])
        again = json.loads(self.pull("--json").stdout)
        self.assertTrue(again["was_complete"])

    def test_patterns(self):
        self.assert_pulled(self.pull("--include", "*.md", "--include", "original/", "--include", "config.json"),
                           {"README.md", "original/model.safetensors", "config.json"})
        self.assert_pulled(self.pull("--exclude", "tokenizer*"),
                           {"README.md", "original/model.safetensors", "config.json", "model.safetensors"})
        self.assert_error(self.pull("--include", "*.nothing"), 1, "none of its 6 files matches")

    def test_revisions(self):
        self.hub.revisions |= {"v1": COMMIT, "refs/pr/7": COMMIT}
        result = self.pull("--revision", "refs/pr/7")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.folder / "refs/refs/pr/7").read_text(), COMMIT)
        self.assertIn(f"quire chat {self.snapshot}", result.stdout)
        self.assertFalse((self.folder / "refs/main").exists())
        self.assertEqual(self.pull("--revision", COMMIT).returncode, 0)
        self.assertFalse((self.folder / "refs" / COMMIT).exists())
        self.assert_error(self.pull("--revision", "v9"), 1, "org/name has no revision v9")
        self.assert_error(self.pull("--revision", "../x"), 1, "it leads elsewhere")

    def test_a_new_commit_shares_what_is_the_same(self):
        self.assert_pulled(self.pull())
        old = self.snapshot
        self.hub.commit = "f" * 40
        self.hub.revisions |= {"main": self.hub.commit, self.hub.commit: self.hub.commit}
        self.hub.files["config.json"] = CONFIG + b"\n"
        self.hub.requests.clear()
        self.assertEqual(self.pull().returncode, 0)
        self.assertEqual((self.folder / "refs/main").read_text(), self.hub.commit)
        self.assertEqual((self.folder / "snapshots" / self.hub.commit / "config.json").read_bytes(), CONFIG + b"\n")
        self.assertEqual((old / "config.json").read_bytes(), CONFIG)
        self.assertEqual(self.hub.count("/resolve/"), 1)

    def test_a_blob_of_the_wrong_size_is_mended(self):
        self.assert_pulled(self.pull())
        (self.snapshot / "model.safetensors").resolve().write_bytes(WEIGHTS[:1000])
        self.assert_pulled(self.pull())

    def test_several_at_once(self):
        self.hub.faults.chunk = (20_000, 0.005)
        processes = [self.start() for _ in range(3)]
        for process in processes:
            _, stderr = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 0, stderr)
        self.assert_cache()
        self.assertEqual(self.hub.count("/storage/"), 1)

    def test_slow_but_steady(self):
        self.hub.faults.chunk = (10_000, 0.01)
        self.assert_pulled(self.pull())

    def test_wrong_usage(self):
        for model in ("", "../x", "a/b/c", "/etc", "a--b/c", "a b/c", "https://example.com/a/b"):
            self.assert_error(self.pull(model=model), 1, "expected a model's name on the hub")
        self.assert_error(run("pull"), 2, "REPOSITORY")
        self.assert_error(self.pull(HF_ENDPOINT="ftp://x"), 1, "HF_ENDPOINT")
        self.assert_error(self.pull(HF_TOKEN="a\nb: c"), 1, "HF_TOKEN")
        self.assert_error(self.pull(HF_HUB_OFFLINE="1"), 1, "HF_HUB_OFFLINE")
        self.assertEqual(self.hub.requests, [])


class Runs(PullTest):
    files = {path.name: path.read_bytes() for path in LEXICON.iterdir()}

    def test_the_pulled_model_runs(self):
        missing = run("generate", "org/name", "-p", "define apple", env=self.environment())
        self.assert_error(missing, 1, "quire pull org/name")
        self.assertEqual(self.pull().returncode, 0)
        result = run("generate", "org/name", "--chat", "-p", "define apple", env=self.environment())
        self.assert_ok(result)
        bundled = run("generate", "--chat", "-p", "define apple")
        self.assertEqual(result.stdout, bundled.stdout)


class Shards(PullTest):
    SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    files = {
        "config.json": CONFIG,
        "model.safetensors.index.json": json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode(),
        SHARDS[0]: b"first" * 100,
        SHARDS[1]: b"second" * 100,
        "consolidated.safetensors": b"the same again",
    }
    WANTED = {"config.json", "model.safetensors.index.json", *SHARDS}

    def test_takes_the_shards_of_the_index(self):
        self.assert_pulled(self.pull(), self.WANTED)
        self.hub.requests.clear()
        self.assertIn("already complete", self.pull().stdout)
        self.assertEqual(len(self.hub.requests), 1)

    def test_a_shard_that_is_not_there(self):
        del self.hub.files[self.SHARDS[1]]
        self.assert_error_after_lines(self.pull(), "lists model-00002-of-00002.safetensors, which is not there")

    def test_an_index_that_leads_elsewhere(self):
        for shard in ("../../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin", 1):
            self.hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": shard}}).encode()
            self.assert_error_after_lines(self.pull(), "weight_map")


class Gguf(PullTest):
    files = {
        "README.md": b"# Model",
        "config.json": b"{}",
        "mmproj-F16.gguf": b"images",
        "Name-Q4_K_M.gguf": b"four bits" * 50,
        "Q8_0/Name-Q8_0-00001-of-00002.gguf": b"eight bits" * 50,
        "Q8_0/Name-Q8_0-00002-of-00002.gguf": b"the rest" * 50,
    }

    def test_takes_the_file_of_that_name(self):
        result = self.pull(model="org/name:q4_k_m")
        self.assert_pulled(result, {"Name-Q4_K_M.gguf"})
        self.assertIn("Name-Q4_K_M.gguf\n", result.stdout)
        self.assertIn("Next: quire chat org/name:q4_k_m\n", result.stdout)
        # What is there is found without the hub; it is no sound GGUF file, though.
        self.assert_error(run("inspect", "org/name:Q4_K_M", env=self.environment()), 1, "does not begin with GGUF")

    def test_a_model_runs_from_where_it_was_pulled(self):
        with tempfile.TemporaryDirectory() as folder:
            path = gguf_model.write(gguf_model.convert(
                SOURCE_DIR / "tests/golden/models/qwen3-tied", "Q8_0"), pathlib.Path(folder) / "m.gguf")
            self.hub.files = {"Name-Q4_K_M.gguf": b"four bits", "Name-Q8_0.gguf": path.read_bytes()}
            arguments = ("--prompt-tokens", "1,2,3", "--max-tokens", "4", "--json")
            expected = run("generate", path, *arguments, env=CPU)
            self.assert_ok(expected)
            self.assert_pulled(self.pull(model="org/name:Q8_0"), {"Name-Q8_0.gguf"})
            result = run("generate", "org/name:Q8_0", *arguments, env=self.environment() | CPU)
            self.assert_ok(result)
            self.assertEqual(result.stdout, expected.stdout)

    def test_takes_all_parts(self):
        parts = {name for name in self.files if name.startswith("Q8_0/")}
        result = self.pull("--json", model="org/name:Q8_0")
        self.assert_pulled(result, parts)
        self.assertTrue(json.loads(result.stdout)["path"].endswith("Q8_0/Name-Q8_0-00001-of-00002.gguf"))

    def test_lists_what_is_there(self):
        self.assert_error(self.pull(), 1, "there are 2 GGUF models: Name-Q4_K_M.gguf, Q8_0/Name-Q8_0-00001-of-00002.gguf",
                          "org/name:Q4_K_M")
        self.assert_error(self.pull(model="org/name:Q5_0"), 1, "no GGUF file's name ends in Q5_0", "Name-Q4_K_M.gguf")
        self.assert_error(self.pull("--include", "*", model="org/name:Q8_0"), 2, "--include")
        self.assertEqual(self.hub.count("/resolve/"), 0)

    def test_one_file_needs_no_name(self):
        self.hub.files = {"m.gguf": b"GGUF"}
        self.assert_pulled(self.pull(), {"m.gguf"})


class Refused(PullTest):
    def test_no_safetensors(self):
        for name, hint in (("pytorch_model.bin", "PyTorch"), ("other.txt", "no language model"),
                           ("adapter_model.safetensors", "adapter"), ("x/model.safetensors", "in folders")):
            self.hub.files = {"config.json": CONFIG, name: b"x"}
            self.assert_error(self.pull(), 1, "no weights that quire can read", hint, "Nothing was downloaded")
        self.hub.files = {"model.safetensors": WEIGHTS}
        self.assert_error(self.pull(), 1, "no config.json")
        self.assertEqual(self.hub.count("/resolve/"), 0)
        self.assertFalse(self.folder.exists())

    def test_unknown_model(self):
        self.assert_error(self.pull(model="org/other"), 1, "org/other: there is no such model")

    def test_401(self):
        self.hub.faults.answers["/api/"] = [(401, {})] * 2
        self.assert_error(self.pull(), 1, "HTTP 401", "private or gated", f"{self.hub.url}/org/name", "HF_TOKEN")
        self.assert_error(self.pull(HF_TOKEN="hf_wrong"), 1, "HTTP 401", "check HF_TOKEN")

    def test_gated(self):
        self.hub.gated_token = "hf_right"
        self.assert_error(self.pull(), 1, "gated", "accept its licence", f"{self.hub.url}/org/name", "set HF_TOKEN")
        self.assert_error(self.pull(HF_TOKEN="hf_wrong"), 1, "without access")
        self.assert_nothing_linked()
        (self.home / "token").write_text("hf_right\n")
        self.assert_pulled(self.pull())

    def test_the_token_goes_to_the_hub_alone(self):
        self.assert_pulled(self.pull(HF_TOKEN="hf_secret"))
        by_server = {"hub": set(), "storage": set()}
        for request in self.hub.requests:
            by_server[request.server].add(request.headers.get("Authorization"))
        self.assertEqual(by_server, {"hub": {"Bearer hf_secret"}, "storage": {None}})

    def test_redirects_that_are_refused(self):
        for target, fragment in (("file:///etc", "refused"), ("gopher://127.0.0.1", "redirects"),
                                 ("http://user:x@127.0.0.1", "cannot be read"), ("http://[", "cannot be read")):
            self.hub.redirect_to = target
            self.assert_error_after_lines(self.pull(), fragment)
        self.hub.redirect_to = None
        loop = {"Location": f"{self.hub.url}/org/name/resolve/{COMMIT}/model.safetensors"}
        self.hub.faults.answers["model.safetensors"] = [(302, loop)] * 20
        self.assert_error_after_lines(self.pull(), "more than 10 redirects")

    def test_hostile_names(self):
        for name in ("../evil", "a/../../evil", "/etc/evil", "a//b", "./a", "a/.", "a\0b", "x" * 300, "y/" * 600 + "y", ""):
            with self.subTest(name=name[:20]):
                self.hub.files = MODEL | {name: b"evil"}
                self.assert_error(self.pull("--include", "*"), 1, "is refused")
                self.assertFalse(self.folder.exists())
        self.hub.files = MODEL | {"config.json/x": b"evil"}
        self.assert_error(self.pull("--include", "*"), 1, "as a file and as a folder")

    def test_nonsense_from_the_api(self):
        def changed(**fields):
            return lambda listing: listing | fields

        def sibling(**fields):
            return lambda listing: listing | {"siblings": [listing["siblings"][0] | fields]}

        cases = [
            (changed(sha="../../../x"), "commit"), (changed(sha=None), "commit"), (changed(siblings={}), "siblings"),
            (changed(siblings=[1]), "siblings"), (sibling(size=-1), "size"), (sibling(size="1"), "size"),
            (sibling(size=1 << 60), "size"), (sibling(blobId="../x"), "git SHA-1"), (sibling(blobId=None), "git SHA-1"),
            (sibling(lfs={"sha256": "x" * 64, "size": len(CONFIG)}), "SHA-256"),
            (sibling(lfs={"sha256": "a" * 64, "size": 1}), "two sizes"), (sibling(rfilename=7), "no name"),
            (lambda listing: listing | {"siblings": listing["siblings"] * 2}, "listed twice"),
            (lambda listing: [], "JSON object"), (lambda listing: "x" * (17 << 20), "longer than"),
        ]
        for change, fragment in cases:
            with self.subTest(fragment=fragment):
                self.hub.listing_changes = change
                self.assert_error(self.pull(), 1, fragment)
                self.assertFalse(self.folder.exists())

    def test_a_full_disk_is_seen_before(self):
        def huge(listing):
            for entry in listing["siblings"]:
                if "lfs" in entry:
                    entry["size"] = entry["lfs"]["size"] = 1 << 49
            return listing

        self.hub.listing_changes = huge
        self.assert_error(self.pull(), 1, "no room for org/name")
        self.assertEqual(self.hub.count("/resolve/"), 0)

    def test_no_hub(self):
        self.assertEqual(self.pull(HF_ENDPOINT="http://127.0.0.1:1").returncode, 1)
        self.assertIn("cannot be reached", self.pull(HF_ENDPOINT="http://127.0.0.1:1").stderr)

    def test_the_cache_cannot_be_written(self):
        (self.cache / "file").write_text("")
        self.assert_error(self.pull(HF_HUB_CACHE=str(self.cache / "file")), 1, str(self.cache / "file"))


if __name__ == "__main__":
    unittest.main()
