"""LoRA adapters that are served: each is a model of the API, and comes and goes while requests run."""

import concurrent.futures
import json
import pathlib
import shutil
import tempfile
import unittest

from lora_adapters import write_adapter
from server_support import serving
from support import LEXICON, SOURCE_DIR, CliTest, json_lines, run

GOLDEN = SOURCE_DIR / "tests" / "golden"
ADAPTERS = GOLDEN / "lora"
PIRATE = SOURCE_DIR / "models" / "lexicon-pirate"
BASE = GOLDEN / "models" / "qwen3-bias-sharded"
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


def prompts_of(folder):
    return json.loads((folder / "golden.json").read_text())["prompts"]


class Golden(CliTest):
    """PEFT's own token ids, through the API."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serving(
            BASE, "--served-model-name", "base", "--served-model-name", "org/base:Q", "--dtype", "float32",
            "--enable-lora", "--max-loras", "2", "--max-lora-rank", "16", "--max-cpu-loras", "2",
            "--allow-runtime-lora", "--lora-dir", ADAPTERS,
            "--lora-modules", f"dora={ADAPTERS / 'dora'}",
            json.dumps({"name": "layers", "path": str(ADAPTERS / "layers"), "base_model_name": "org/first"}),
            f"embedding={ADAPTERS / 'embedding'}"))

    def complete(self, model, prompt, **fields):
        return self.server.post("/v1/completions", {
            "model": model, "prompt": prompt["prompt_token_ids"], "temperature": 0, "ignore_eos": True,
            "max_tokens": len(prompt["output_token_ids"]), "return_token_ids": True, **fields})

    def check(self, model, folder, answers_as):
        for prompt in prompts_of(folder):
            status, _, answer = self.complete(model, prompt)
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["choices"][0]["token_ids"], prompt["output_token_ids"], model)
            self.assertEqual(answer["model"], answers_as)

    def refused(self, path, body, status, *parts):
        code, _, answer = self.server.post(path, body)
        self.assertEqual(code, status, answer)
        for part in parts:
            self.assertIn(part, answer["error"]["message"])
        return answer["error"]

    def test_the_models(self):
        models = {each["id"]: each for each in self.server.get("/v1/models")[2]["data"]}
        self.assertEqual(list(models)[:2], ["base", "org/base:Q"])
        self.assertEqual(models["base"]["parent"], None)
        self.assertEqual((models["dora"]["parent"], models["dora"]["root"]), ("base", str(ADAPTERS / "dora")))
        self.assertEqual(models["layers"]["parent"], "org/first")
        self.assertEqual(self.server.get("/v1/models/org/base:Q:dora")[2]["id"], "dora")
        self.assertEqual(self.server.get("/v1/models/none")[0], 404)

    def test_each_answers_as_peft_does_at_once(self):
        names = [("base", BASE), ("dora", ADAPTERS / "dora"), ("layers", ADAPTERS / "layers"),
                 ("embedding", ADAPTERS / "embedding")]
        asked = [(name, folder, answers_as) for name, folder in names
                 for name, answers_as in ((name, name), (f"org/base:Q:{name}" if name != "base" else name, name))]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(self.check, *each) for each in asked * 3]:
                future.result()
        metrics = self.server.metrics()
        self.assertGreaterEqual(metrics["quire:lora_loads_total"], 3)
        self.assertGreaterEqual(metrics["quire:lora_evictions_total"], 1)
        self.assertIn("quire:lora_waits_total", metrics)
        info = [line for line in self.server.get("/metrics")[2].decode().splitlines()
                if line.startswith("quire:lora_requests_info{")]
        self.assertEqual(len(info), 1)
        for label in ('max_lora="2"', "running_lora_adapters=", "waiting_lora_adapters="):
            self.assertIn(label, info[0])

    def test_streams_logs_and_facts_name_the_adapter(self):
        prompt = prompts_of(ADAPTERS / "dora")[0]
        events = list(self.server.stream("/v1/completions", {
            "model": "base:dora", "prompt": prompt["prompt_token_ids"], "temperature": 0, "ignore_eos": True,
            "max_tokens": 4, "return_token_ids": True}))
        self.assertEqual({event["model"] for event in events}, {"dora"})
        facts = self.server.get(f"/v1/requests/{events[0]['id']}")[2]
        self.assertEqual(facts["model"], "dora")
        self.server.wait_for(lambda: "dora" in self.server.log, "a line about the adapter")

    def test_unknown_names(self):
        prompt = prompts_of(BASE)[0]
        for name in ("none", "base:none", "none:dora", "base:"):
            status, _, answer = self.complete(name, prompt)
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
            self.assertEqual(answer["error"]["message"], f"The model '{name}' does not exist.")

    def test_tokenize_takes_adapters(self):
        self.assertEqual(self.server.post("/detokenize", {"model": "dora", "tokens": [1]})[0], 400)  # no tokenizer
        self.assertEqual(self.server.post("/detokenize", {"model": "none", "tokens": [1]})[0], 404)

    def test_come_and_go(self):
        status, headers, text = self.server.post(LOAD, {"lora_name": "mine", "lora_path": "embedding-dora"})
        self.assertEqual((status, text.decode()), (200, "Success: LoRA adapter 'mine' added successfully."))
        self.assertTrue(headers["Content-Type"].startswith("text/plain"))
        self.check("mine", ADAPTERS / "embedding-dora", "mine")
        self.refused(LOAD, {"lora_name": "mine", "lora_path": "dora"}, 400, "loaded already")
        self.assertEqual(self.server.post(LOAD, {"lora_name": "mine", "lora_path": str(ADAPTERS / "dora"),
                                                 "load_inplace": True})[0], 200)
        self.check("base:mine", ADAPTERS / "dora", "mine")
        entry = self.server.get("/v1/models/mine")[2]
        self.assertEqual((entry["root"], entry["parent"]), (str(ADAPTERS / "dora"), "base"))
        status, _, text = self.server.post(UNLOAD, {"lora_name": "mine", "lora_int_id": 7})
        self.assertEqual((status, text.decode()), (200, "Success: LoRA adapter 'mine' removed successfully."))
        self.assertEqual(self.complete("mine", prompts_of(BASE)[0])[0], 404)
        self.refused(UNLOAD, {"lora_name": "mine"}, 404, "mine is not loaded")
        self.check("dora", ADAPTERS / "dora", "dora")

    def test_trained_copies_of_matrices(self):
        self.assertEqual(self.server.post(LOAD, {"lora_name": "saved", "lora_path": "saved"})[0], 200)
        self.check("saved", ADAPTERS / "saved", "saved")
        self.assertEqual(self.server.post(UNLOAD, {"lora_name": "saved"})[0], 200)

    def test_what_is_refused(self):
        for path in ("../models", "/etc", "/none", "dora/../../models", "dora\0/../../models"):
            with self.subTest(path):
                error = self.refused(LOAD, {"lora_name": "x", "lora_path": path}, 400)
                self.assertEqual(error["param"], "lora_path")
        self.refused(LOAD, {"lora_name": "x", "lora_path": "none"}, 404, "There is no folder none")
        self.refused(LOAD, {"lora_name": "x", "lora_path": "."}, 400, "adapter_config.json")
        self.refused(LOAD, {"lora_name": "x", "lora_path": "patterns"}, 400)  # another base's
        for name in ("base", "org/base:Q"):
            self.refused(LOAD, {"lora_name": name, "lora_path": "dora"}, 400, "is the model itself")
        for body in ({}, {"lora_name": "x"}, {"lora_path": "dora"}, {"lora_name": "", "lora_path": "dora"},
                     {"lora_name": 1, "lora_path": "dora"}, {"lora_name": "a\nb", "lora_path": "dora"},
                     {"lora_name": "x" * 300, "lora_path": "dora"}, {"lora_name": "x", "lora_path": ["dora"]},
                     {"lora_name": "x", "lora_path": "dora", "load_inplace": "yes"}):
            self.assertTrue(self.refused(LOAD, body, 400)["param"])
        self.assertEqual(self.server.get("/v1/models/x")[0], 404)

    def test_a_thousand_loads_disturb_nobody(self):
        prompt = prompts_of(ADAPTERS / "dora")[0]
        loads = [{"lora_name": f"many-{i % 50}", "lora_path": ("layers", "dora", "none", "../models")[i % 4],
                  "load_inplace": i % 3 == 0} for i in range(1000)]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = [pool.submit(self.server.post, LOAD, body, timeout=120) for body in loads]
            for _ in range(10):
                self.check("dora", ADAPTERS / "dora", "dora")
                self.assertEqual(self.complete("base", prompt)[0], 200)
            statuses = [answer.result()[0] for answer in answers]
        self.assertEqual(set(statuses), {200, 400, 404})
        loaded = [each["id"] for each in self.server.get("/v1/models")[2]["data"] if each["id"].startswith("many-")]
        self.assertTrue(loaded)
        for name in loaded:
            self.assertEqual(self.server.post(UNLOAD, {"lora_name": name})[0], 200)

    def test_a_request_goes_on_when_its_adapter_goes(self):
        prompt = prompts_of(ADAPTERS / "layers")[0]
        for max_tokens in (100, 400, 1600):  # until one still runs when its adapter goes
            self.server.post(LOAD, {"lora_name": "short", "lora_path": "layers"})
            status, _, answer = self.complete("short", prompt, max_tokens=max_tokens)
            if status == 400:  # more than the model takes
                break
            stream = self.server.stream("/v1/completions", {
                "model": "short", "prompt": prompt["prompt_token_ids"], "temperature": 0, "ignore_eos": True,
                "max_tokens": max_tokens, "return_token_ids": True})
            first = next(stream)
            ids = list(first["choices"][0]["token_ids"])
            self.assertEqual(self.server.post(UNLOAD, {"lora_name": "short"})[0], 200)
            goes_on = self.server.get(f"/v1/requests/{first['id']}")[2]["state"] == "running"
            for event in stream:
                ids += event["choices"][0].get("token_ids", [])
            self.assertEqual(ids, answer["choices"][0]["token_ids"])
            if goes_on:
                return
        self.skipTest("each answer had ended before its adapter could go")

    def test_documented(self):
        document = self.server.get("/openapi.json")[2]
        self.assertIn(LOAD, document["paths"])
        self.assertNotIn("enum", document["components"]["schemas"]["CompletionRequest"]["properties"]["model"])


class Doors(CliTest):
    def test_clients_load_nothing_unless_they_may(self):
        with serving(LEXICON, "--enable-lora") as server:
            for path in (LOAD, UNLOAD):
                self.assertEqual(server.post(path, {"lora_name": "x", "lora_path": "x"})[0], 404)
            self.assertNotIn(LOAD, server.get("/openapi.json")[2]["paths"])
            self.assertEqual(server.metrics()["quire:lora_loads_total"], 0)

    def test_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            adapter = write_adapter(pathlib.Path(folder, "a"))
            with serving(LEXICON, "--enable-lora", "--allow-runtime-lora", "--api-key", "secret") as server:
                body = {"lora_name": "x", "lora_path": str(adapter)}
                self.assertEqual(server.post(LOAD, body)[0], 401)
                server.headers = {"Authorization": "Bearer secret"}
                self.assertEqual(server.post(LOAD, body)[0], 200)

    def test_options_that_do_not_go_together(self):
        for arguments, part in (
                (["--lora-modules", "a=b"], "--lora-modules needs --enable-lora"),
                (["--allow-runtime-lora"], "--allow-runtime-lora needs --enable-lora"),
                (["--max-loras", "2"], "--max-loras needs --enable-lora"),
                (["--max-lora-rank", "16"], "--max-lora-rank needs --enable-lora"),
                (["--max-cpu-loras", "2"], "--max-cpu-loras needs --enable-lora"),
                (["--lora-copy-memory-bytes", "1M"], "--lora-copy-memory-bytes needs --enable-lora"),
                (["--enable-lora", "--lora-dir", "."], "--lora-dir needs --allow-runtime-lora"),
                (["--enable-lora", "--allow-runtime-lora", "--lora-dir", "/none"], "there is no folder /none"),
                (["--enable-lora", "--lora-modules", "a"], "expected NAME=PATH"),
                (["--enable-lora", "--lora-modules", "a=x", "a=y"], "--lora-modules: the name a is given twice"),
                (["--enable-lora", "--lora-modules", "a\nb=x"], "has control characters"),
                (["--enable-lora", "--max-loras", "0"], "--max-loras: expected 1 to 1024")):
            with self.subTest(arguments):
                self.assert_error(run("serve", LEXICON, *arguments), 2, part)
        for arguments, part in (
                (["--lora-modules", "a=/none"], "/none"),
                (["--max-loras", "3", "--max-cpu-loras", "2"], "--max-cpu-loras")):
            result = run("serve", LEXICON, "--port", "0", "--enable-lora", *arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(part, result.stderr)


class OfTheBundledModel(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name, strength in (("zero", 0), ("one", 0.3)):
            write_adapter(cls.folder / name, strength=strength)

    def test_chats(self):
        with serving(LEXICON, "--enable-lora", "--max-loras", "2", "--lora-modules", f"zero={self.folder / 'zero'}",
                     f"one={self.folder / 'one'}") as server:
            said = {}
            for model in ("lexicon", "zero", "one", "lexicon:zero"):
                status, _, answer = server.chat("define apple", model=model, max_tokens=20)
                self.assertEqual(status, 200, answer)
                said[model] = answer["choices"][0]["message"]["content"]
                self.assertEqual(answer["model"], model.split(":")[-1])
            self.assertEqual(said["zero"], said["lexicon"])
            self.assertEqual(said["lexicon:zero"], said["lexicon"])
            self.assertNotEqual(said["one"], said["lexicon"])

    def test_generate_and_chat(self):
        options = ("--temperature", "0", "--max-tokens", "12")
        lines = [{"prompt": "define apple"}, {"prompt": "define apple", "lora": None},
                 {"prompt": "define apple", "lora": "zero"}, {"prompt": "define apple", "lora": "one"}]
        path = self.folder / "prompts.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        loras = ("--lora", f"one={self.folder / 'one'}", "--lora", f"zero={self.folder / 'zero'}")
        result = run("generate", LEXICON, *loras, "--prompt-file", str(path), "--json", *options)
        self.assert_ok(result)
        first, base, zero, one = (line["text"] for line in json_lines(result.stdout))
        self.assertEqual((base, first), (zero, one))
        self.assertNotEqual(base, one)
        alone = run("generate", LEXICON, "-p", "define apple", *options)
        self.assertEqual(alone.stdout.rstrip("\n"), base)
        chats = {name: run("chat", LEXICON, *(("--lora", f"x={self.folder / name}") if name else ()), *options,
                           stdin="define apple\n").stdout for name in ("", "zero", "one")}
        self.assertEqual(chats["zero"], chats[""])
        self.assertNotEqual(chats["one"], chats[""])

    def test_the_one_that_comes_with_it(self):
        with serving(LEXICON, "--enable-lora", "--lora-modules", f"pirate={PIRATE}") as server:
            said = {model: server.chat("What does ephemeral mean?", model=model)[2]["choices"][0]["message"]["content"]
                    for model in ("lexicon", "pirate")}
            definition, example = said["lexicon"].split(" Example: ")
            self.assertEqual(said["pirate"], f"{definition} Heard at sea: {example} Arr, matey!")

    def test_what_generate_refuses(self):
        self.assert_error(run("generate", LEXICON, "-p", "x", "--lora", "a"), 2, "--lora: expected NAME=PATH")
        self.assert_error(run("generate", LEXICON, "-p", "x", "--lora", "a=/none"), 1, "/none")
        path = self.folder / "unknown.jsonl"
        path.write_text('{"prompt": "x", "lora": "none"}\n')
        self.assert_error(run("generate", LEXICON, "--prompt-file", str(path), "--lora", f"a={self.folder / 'zero'}"), 1,
                          'no adapter "none"')

        path.write_text('{"prompt": "x", "lora": "a"}\n')
        self.assert_error(run("generate", LEXICON, "--prompt-file", str(path)), 1, "--lora NAME=PATH")
        twice = [f"a={self.folder / name}" for name in ("zero", "one")]
        self.assert_error(run("generate", LEXICON, "-p", "x", "--lora", twice[0], "--lora", twice[1]), 2,
                          "the name a is given twice")

    def test_the_models_name_is_taken(self):
        for name, sentence in (("lexicon", "lexicon, which is the model itself"),
                               ("lexicon:x", "lexicon:x, which is what requests may call the adapter x of lexicon")):
            result = run("serve", LEXICON, "--port", "0", "--enable-lora", "--lora-modules",
                         f"{name}={self.folder / 'zero'}")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"--lora-modules: the name is {sentence}; expected another name.", result.stderr)

    def test_options_of_commands_that_answer_themselves(self):
        for command in (("generate", LEXICON, "-p", "x"), ("chat", LEXICON)):
            self.assert_error(run(*command, "--lora-copy-memory-bytes", "1M"), 2,
                              "--lora-copy-memory-bytes needs --lora")
        large = write_adapter(self.folder / "large", rank=513)
        self.assert_error(run("generate", LEXICON, "-p", "x", "--lora", f"a={large}"), 1,
                          "is 513; expected at most 512, the most that is served: merge it into its base (quire merge).")

    def test_many_that_wait_for_an_adapter(self):
        with serving(LEXICON, "--enable-lora", "--lora-modules", f"zero={self.folder / 'zero'}",
                     f"one={self.folder / 'one'}") as server:
            def ask(model):
                status, _, answer = server.chat("define apple", model=model, max_tokens=8)
                self.assertEqual(status, 200, answer)
                return answer["choices"][0]["message"]["content"]
            alone = {model: ask(model) for model in ("lexicon", "zero", "one")}
            models = ["zero"] * 2 + ["one"] * 40 + ["lexicon", "zero", "lexicon"]
            with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
                for model, said in zip(models, pool.map(ask, models)):
                    self.assertEqual(said, alone[model], model)

    def test_a_folder_that_is_gone(self):
        write_adapter(self.folder / "gone", seed=4)
        write_adapter(self.folder / "other", seed=5)
        with serving(LEXICON, "--enable-lora", "--lora-modules", f"gone={self.folder / 'gone'}",
                     f"other={self.folder / 'other'}") as server:  # one stays in memory
            self.assertEqual(server.chat("define apple", model="other", max_tokens=2)[0], 200)
            shutil.rmtree(self.folder / "gone")
            status, _, answer = server.chat("define apple", model="gone", max_tokens=2)
            self.assertEqual(status, 500, answer)
            self.assertEqual(server.chat("define apple", model="other", max_tokens=2)[0], 200)


if __name__ == "__main__":
    unittest.main()
