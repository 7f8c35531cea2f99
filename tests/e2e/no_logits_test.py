"""A model whose logits are NaN: every request ends with an error that says so, and nothing else does."""

import unittest

from damaged_models import without_logits
from server_support import serving
from support import CliTest, json_lines, model_copy, run

SENTENCE = "the model's logits are not finite"


class NoLogits(CliTest):
    @classmethod
    def setUpClass(cls):
        context = model_copy(model__safetensors=without_logits())
        cls.folder = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def test_generate(self):
        for temperature in ("0", "1"):
            result = run("generate", self.folder, "-p", "define apple", "--temperature", temperature)
            self.assert_error(result, 1, "prompt 0", SENTENCE)
            self.assertEqual(result.stdout, "")
        result = run("generate", self.folder, "-p", "define apple", "--json")
        self.assertEqual(result.returncode, 1)
        line, = json_lines(result.stdout)
        self.assertEqual((line["finish_reason"], line["text"], line["token_ids"]), ("abort", "", []))
        self.assertIn(SENTENCE, line["error"])

    def test_chat(self):
        self.assert_error(run("chat", self.folder, stdin="define apple\n"), 1, SENTENCE)

    def test_serve(self):
        with serving(self.folder) as server:
            for path, body in (("/v1/completions", {"prompt": "define apple"}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})):
                status, _, answer = server.post(path, {**body, "max_tokens": 8})
                self.assertEqual((status, answer["error"]["type"]), (500, "server_error"))
                self.assertIn(SENTENCE, answer["error"]["message"])
                *_, last = server.stream(path, {**body, "max_tokens": 8})
                self.assertIn(SENTENCE, last["error"]["message"])
            self.assertEqual(server.get("/health")[0], 200)
            self.assertEqual(server.get("/ready")[0], 200)
            server.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
