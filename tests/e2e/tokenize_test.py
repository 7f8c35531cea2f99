"""quire tokenize."""

import json
import unittest

from support import LEXICON, CliTest, json_lines, model_copy, run


class Tokenize(CliTest):
    def test_text_comes_back(self):
        texts = ["define apple", "", "  two  spaces ", "h\u00e9llo \U0001f600 \u4e16\u754c", "tab\there", "carriage\r"]
        result = run("tokenize", stdin="\n".join(texts) + "\n")
        self.assert_ok(result)
        lines = json_lines(result.stdout)
        self.assertEqual([list(line) for line in lines], [["token_ids", "text"]] * len(texts))
        self.assertEqual([line["text"] for line in lines], texts)

    def test_json_lines_of_three_kinds(self):
        chat = [{"role": "user", "content": "define apple"}]
        requests = [{"text": "define apple"}, {"token_ids": [72, 73]}, {"messages": chat},
                    {"messages": chat, "add_generation_prompt": False}]
        result = run("tokenize", LEXICON, "--json", stdin="\n".join(map(json.dumps, requests)))
        self.assert_ok(result)
        text, ids, rendered, without = json_lines(result.stdout)
        self.assertEqual(text["text"], "define apple")
        self.assertEqual(ids["token_ids"], [72, 73])
        self.assertIn("<|im_start|>user\ndefine apple<|im_end|>", rendered["text"])
        self.assertTrue(rendered["text"].startswith(without["text"]))
        again = json_lines(run("tokenize", "--json", stdin=json.dumps({"token_ids": rendered["token_ids"]})).stdout)[0]
        self.assertEqual(again["text"], rendered["text"])
        skipped = json_lines(run("tokenize", "--json", "--skip-special-tokens",
                                 stdin=json.dumps({"token_ids": rendered["token_ids"]})).stdout)[0]
        self.assertNotIn("<|im_start|>", skipped["text"])

    def test_needs_only_the_tokenizers_files(self):
        with model_copy(without=("config.json", "generation_config.json", "model.safetensors")) as folder:
            result = run("tokenize", folder, stdin="define apple")
        self.assert_ok(result)
        self.assertEqual(json_lines(result.stdout)[0]["text"], "define apple")

    def test_bad_lines(self):
        cases = [
            ("{", "standard input line 1: not valid JSON"),
            ("[]", "expected a JSON object"),
            ("{}", "expected exactly one of the fields"),
            ('{"text": "a", "token_ids": [1]}', "expected exactly one of the fields"),
            ('{"txt": "a"}', "unexpected field txt; did you mean text?"),
            ('{"text": 1}', "text: expected a string"),
            ('{"token_ids": [-1]}', "token_ids[0]"),
            ('{"token_ids": [99999]}', "99999"),
            ('{"messages": []}', "messages"),
            ('{"messages": ["hi"]}', "standard input line 1"),
            ('{"text": "a", "tools": []}', "without messages"),
        ]
        for line, fragment in cases:
            with self.subTest(line=line):
                self.assert_error(run("tokenize", "--json", stdin=line), 1, "line 1", fragment)

    def test_invalid_utf8(self):
        self.assert_error(run("tokenize", stdin=b"fine\n\xff\xfe\n"), 1, "standard input line 2", "UTF-8")

    def test_missing_files(self):
        self.assert_error(run("tokenize", "--file", "/nowhere/text"), 1, "/nowhere/text")
        with model_copy(without=("tokenizer.json",)) as folder:
            self.assert_error(run("tokenize", folder, stdin="a"), 1, "tokenizer.json")


if __name__ == "__main__":
    unittest.main()
