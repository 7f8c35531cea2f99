"""quire grammar check."""

import json
import pathlib
import tempfile
import unittest

from support import LEXICON, CliTest, json_lines, run

LINES = [
    {"json_schema": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
     "texts": ['{"age": 7}', '{ "x" : [ ] ,\n"age":1e1}', '{"age": "7"}', "{}", ""]},
    {"regex": "[a-z]+", "texts": ["abc", "ABC"]},
    {"choice": ["yes", "no"], "texts": ["no", "nope"]},
    {"json_schema": {"properties": {"a": {"$ref": "https://example.com/other.json"}}}, "texts": ["{}"]},
    {"json_schema": False},
    {"json_schema": True, "texts": ["null"]},
    {"grammar": 'root ::= "(" root ")" | [a-z]+', "texts": ["((abc))", "((abc)"]},
]


class GrammarCheck(CliTest):
    def test_json_lines(self):
        result = run("grammar", "check", "--json", stdin="\n".join(map(json.dumps, LINES)))
        self.assert_ok(result)
        answers = json_lines(result.stdout)
        self.assertEqual([answer["compiled"] for answer in answers], [True, True, True, False, False, True, True])
        self.assertEqual(answers[0]["accepted"], [True, True, False, False, False])
        self.assertEqual(answers[1]["accepted"], [True, False])
        self.assertEqual(answers[2]["accepted"], [True, False])
        self.assertGreater(answers[0]["compile_ms"], 0)
        self.assertIn("#/properties/a/$ref: ", answers[3]["error"])
        self.assertIn("no value fulfils", answers[4]["error"])
        self.assertEqual(answers[5]["accepted"], [True])
        self.assertEqual(answers[6]["accepted"], [True, False])

    def test_lines_stay_in_order(self):
        lines = [{"choice": [str(i)], "texts": [str(i), str(i + 1)]} for i in range(1000)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lines.jsonl"
            path.write_text("\n".join(map(json.dumps, lines)))
            result = run("grammar", "check", "--json", "--file", str(path))
        self.assert_ok(result)
        self.assertEqual([answer["accepted"] for answer in json_lines(result.stdout)], [[True, False]] * 1000)

    def test_table(self):
        result = run("grammar", "check", stdin="\n".join(map(json.dumps, LINES[1:4])))
        self.assert_ok(result)
        self.assertRegex(result.stdout, r"(?s)line 1 +compiled in .* ms\n +text 1 +accepted\n +text 2 +rejected\n")
        self.assertIn("line 3  refused  #/properties/a/$ref: ", result.stdout)

    def test_formats_can_be_annotations(self):
        line = json.dumps({"json_schema": {"format": "date"}, "texts": ['"yesterday"']})
        self.assertEqual(json_lines(run("grammar", "check", "--json", stdin=line).stdout)[0]["accepted"], [False])
        free = run("grammar", "check", "--json", "--no-formats", stdin=line)
        self.assertEqual(json_lines(free.stdout)[0]["accepted"], [True])

    def test_masks_of_a_model(self):
        lines = [
            {"regex": "[a-z]+ [0-9]{2}", "texts": ["abc 12", "abc 1x", ""]},
            {"grammar": LINES[6]["grammar"], "texts": ["((abc))", "((abc)"]},
            {"choice": ["caf\u00e9", "<|im_end|>"], "texts": ["caf\u00e9", "<|im_end|>", "caf"]},
            {"json_schema": {"type": "object"}, "texts": ['{"a": [1, "b"]}', '{"a":' + " " * 1000 + "1}", "[]"]},
            {"json_schema": False},
        ]
        result = run("grammar", "check", LEXICON, "--json", stdin="\n".join(map(json.dumps, lines)))
        self.assert_ok(result)
        answers = json_lines(result.stdout)
        self.assertEqual([answer.get("accepted") for answer in answers],
                         [[True, False, False], [True, False], [True, True, False], [True, True, False], None])
        # Too much white space is accepted and not generated.
        self.assertEqual([answer.get("generated") for answer in answers],
                         [[True, False, False], [True, False], [True, True, False], [True, False, False], None])
        for answer in answers[:-1]:
            times = answer["mask_us"]
            self.assertEqual(list(times), ["mean", "p99", "max"])
            self.assertLessEqual(times["p99"], times["max"])
        spaced = json.dumps({"json_schema": True, "texts": ['{"a":1}', '{"a": 1}', '{ "a": 1}', '{\n "a": 1}']})
        for kind, generated in (("none", [True, False, False, False]), ("compact", [True, True, False, False]),
                                ("1", [True, True, True, False]), ("2", [True] * 4)):
            answer = run("grammar", "check", LEXICON, "--json", "--structured-whitespace", kind, stdin=spaced)
            self.assertEqual(json_lines(answer.stdout)[0]["generated"], generated, kind)
        self.assert_error(run("grammar", "check", "--structured-whitespace", "much", stdin=spaced), 2,
                          "--structured-whitespace: expected none, compact or a number")
        kept = run("grammar", "check", LEXICON, "--json", "--masks", stdin=json.dumps(lines[0]))
        first = json_lines(kept.stdout)[0]["masks"][0]
        self.assertEqual(len(first["allowed"]), len(first["token_ids"]) + 1)
        for token, mask in zip(first["token_ids"], first["allowed"]):
            self.assertTrue(bytes.fromhex(mask)[token // 8] >> token % 8 & 1)
        self.assert_error(run("grammar", "check", LEXICON, "--masks", stdin=""), 2, "--masks needs MODEL and --json")
        table = run("grammar", "check", LEXICON, stdin=json.dumps(lines[3]))
        self.assert_ok(table)
        self.assertRegex(table.stdout, r"text 2 +accepted, could not be generated\n(?s:.*)masks: mean .* us")
        self.assert_error(run("grammar", "check", "/nonexistent/model", stdin=""), 1, "/nonexistent/model")

    def test_wrong_lines(self):
        cases = [
            ("{", "standard input line 1: not valid JSON"),
            ("[]", "expected a JSON object"),
            ("{}", "expected one of the fields json_schema, regex, grammar and choice"),
            ('{"regex": "a", "choice": ["a"]}', "there are both regex and choice"),
            ('{"regexp": "a"}', "unexpected field regexp; did you mean regex?"),
            ('{"regex": "a", "texts": [1]}', "texts: expected an array of strings"),
        ]
        for line, message in cases:
            result = run("grammar", "check", "--json", stdin=line + "\n" + json.dumps(LINES[1]))
            self.assert_ok(result)
            wrong, right = json_lines(result.stdout)
            self.assertIn(message, wrong["error"])
            self.assertTrue(right["compiled"])
        self.assert_error(run("grammar", "check", "--file", "/nonexistent"), 1, "cannot read /nonexistent")


if __name__ == "__main__":
    unittest.main()
