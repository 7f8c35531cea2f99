"""Answers in the web page: how they stream, what they show, what hostile ones cannot do."""

import json
import pathlib
import tempfile
import unittest

import web_support
from web_support import LAST, Scripted

setUpModule = web_support.set_up


class Answers(Scripted):
    def test_text_shows_while_it_streams(self):
        more = self.event()

        def answer(reply, _):
            reply.delta(content="The first part, ")
            more.wait()
            reply.say("and the second.")

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('first part')")
            self.assertTrue(page.exists("#stop"))
            self.assertFalse(page.exists("#send"))
            more.set()
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), "The first part, and the second.")
            self.assertTrue(page.exists("#send"))
            self.assertIn("and the second.", page.run("document.querySelector('#announcer').textContent"))

    def test_characters_may_be_cut_anywhere(self):
        text = "Übermut – 🙂 漢字"

        def answer(reply, _):
            event = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]},
                                           ensure_ascii=False).encode() + b"\r\n\r\n"
            for i in range(len(event)):
                reply.raw(event[i:i + 1])
            reply.end()

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), text)

    def test_figures_of_an_answer(self):
        self.script(lambda reply, _: reply.say("a", "b", output=37, prompt=120, cached=96, finish="length"))
        with self.open() as page:
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            notes = page.run(f"[...document.querySelectorAll('{LAST} .notes li')].map(e => e.textContent)")
            self.assertIn("37 output tokens", notes)
            self.assertIn("96 of 120 prompt tokens cached", notes)
            self.assertIn("length cut at the longest answer", notes)
            self.assertTrue(any("to first token" in note for note in notes), notes)

    def test_stop_keeps_what_came(self):
        gone = self.event()

        def answer(reply, _):
            reply.delta(content="kept")
            while reply.delta(content=" more"):
                if gone.wait(0.05):
                    return
            gone.set()

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('more')")
            page.press("Escape")
            self.wait_for_answer(page)
            self.assertTrue(gone.wait(60), "the request went on")
            self.assertTrue(page.text(f"{LAST} .content").startswith("kept more"))
            self.assertIn("stopped", page.text(f"{LAST} .notes"))
            self.ask(page, "And again?")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[1]["messages"][1]["role"], "assistant")

    def test_reasoning_is_folded(self):
        def answer(reply, _):
            for piece in ("Let me ", "think.\n\n- once"):
                reply.delta(reasoning_content=piece)
            reply.say("The answer.")

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), "The answer.")
            self.assertFalse(page.exists(".reasoning-text"))
            self.assertEqual(page.text(".reasoning summary"), "Thought for 1 s")
            page.click(".reasoning summary")
            page.wait_for("document.querySelector('.reasoning-text li')?.innerText === 'once'")
            self.assertNotIn("think", json.dumps(self.mock.requests[0]["messages"]))

    def test_tool_calls_and_their_results(self):
        def answer(reply, _):
            reply.delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function",
                                     "function": {"name": "weather", "arguments": ""}}])
            for piece in ('{"city": ', '"<img src=x>"}'):
                reply.delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}])
            reply.end(finish="tool_calls")

        self.script(answer, lambda reply, _: reply.say("Sunny."))
        with self.open() as page:
            self.ask(page, "Weather?")
            self.wait_for_answer(page)
            self.assertEqual(page.text(".tool-name"), "weather")
            self.assertEqual(page.text(".tool-arguments th"), "city")
            self.assertEqual(page.text(".tool-arguments td"), '"<img src=x>"')
            page.click(".tool-call textarea")
            page.type("21 degrees")
            page.click(".tools > .button")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('Sunny')")
            messages = self.mock.requests[1]["messages"]
            self.assertEqual(messages[1]["tool_calls"][0], {
                "id": "call_1", "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "<img src=x>"}'}})
            self.assertEqual(messages[2], {"role": "tool", "content": "21 degrees", "tool_call_id": "call_1"})

    def calls(self, *arguments, finish="tool_calls"):
        def answer(reply, _):
            for index, text in enumerate(arguments):
                reply.delta(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function",
                                         "function": {"name": f"tool_{index}", "arguments": text}}])
            reply.end(finish=finish)

        return answer

    def test_arguments_of_tools(self):
        nested = {"city": "Oslo", "days": 3, "metric": True, "note": None, "code": "a = 1\nb = 2",
                  "filter": {"tags": ["a", "b"], "deep": {"er": {"and": {"deeper": 1}}}}}
        large = json.dumps({"list": list(range(6000))})
        self.script(self.calls(json.dumps(nested), "{}", "", '{"cut": "he', "[1, 2]", large, finish="length"))
        with self.open(420, 900) as page:
            self.ask(page, "Weather?")
            self.wait_for_answer(page)
            rows = page.run("""[...document.querySelector('.tool-call').querySelectorAll('.tool-arguments > tbody > tr')]
                .map((row) => [...row.children].map((cell) => cell.innerText))""")
            self.assertEqual(rows[:5], [["city", '"Oslo"'], ["days", "3"], ["metric", "true"], ["note", "null"],
                                        ["code", "a = 1\nb = 2"]])
            self.assertEqual(page.run("document.querySelectorAll('.tool-call td details').length"), 5)
            cards = page.run("[...document.querySelectorAll('.tool-call')].map((card) => card.innerText)")
            self.assertEqual(len(cards), 6)
            self.assertIn("No arguments", cards[1])
            self.assertIn("No arguments", cards[2])
            self.assertIn('{"cut": "he', cards[3])
            self.assertEqual(page.run("document.querySelectorAll('.tool-call:nth-child(5) .json-number').length"), 2)
            self.assertEqual(page.run("document.querySelector('.tool-call:nth-child(6) pre').innerText"), large)
            page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
            page.click(".tool-call .icon-button")
            page.wait_for("window.copied !== undefined")
            self.assertEqual(json.loads(page.run("copied")), nested)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 420)

    def test_markdown_code_and_copy(self):
        text = "# Title\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\ndef f():\n    return 1\n```\n\n3. third"
        self.script(lambda reply, _: reply.say(*[text[i:i + 3] for i in range(0, len(text), 3)]))
        with self.open() as page:
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} h1"), "Title")
            self.assertEqual(page.run(f"getComputedStyle(document.querySelector('{LAST} td:last-child')).textAlign"), "right")
            self.assertEqual(page.run(f"document.querySelector('{LAST} ol').start"), 3)
            self.assertIn("def", page.text(".hljs-keyword"))
            page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
            page.click(".copy-code")
            page.wait_for("document.querySelector('.copy-code').innerText === 'Copied'")
            self.assertEqual(page.run("copied").strip(), "def f():\n    return 1")

    def test_a_long_answer(self):
        paragraph = "Some words with *emphasis* and `code`, and so on. " * 6 + "\n\n"

        def answer(reply, _):
            for _ in range(1000):
                if not reply.delta(content=paragraph[:50]) or not reply.delta(content=paragraph[50:]):
                    return
            reply.say("The end.")

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertIn("The end.", page.text(f"{LAST} .content")[-20:])
            self.assertEqual(page.run(f"document.querySelectorAll('{LAST} .block').length"), 1001)


class HostileText(Scripted):
    # What took marked seconds, or more depth than a browser has: shown as the text that it is.
    ENDLESS = ("*a " * 10000, "> " * 20000 + "x", "[" * 30000, "".join("  " * i + "- a\n" for i in range(200)))

    def test_endless_nesting(self):
        self.script(*[lambda reply, _, text=text: reply.say(text, "\n\nThe end.") for text in self.ENDLESS])
        with self.open() as page:
            for _ in self.ENDLESS:
                self.ask(page, "Hello?")
                page.wait_for("!document.querySelector('#stop').hidden || document.querySelector('.notes li')")
                self.wait_for_answer(page)
                self.assertIn("The end.", page.text(f"{LAST} .content")[-20:])

    HOSTILE = """
<script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2">
<svg onload="window.pwned = 3"><style>body { display: none }</style></svg>
<iframe src="javascript:parent.pwned = 4"></iframe>
<a href="javascript:window.pwned = 5">raw</a> <form action="https://example.org/"><input name=x></form>

[link](javascript:window.pwned=6) [upper](JaVaScRiPt:window.pwned=7) [entity](&#106;avascript:window.pwned=8)
[data](data:text/html,<script>window.pwned=9</script>) <javascript:window.pwned=10> [vb](vbscript:x)
![image](https://example.org/pixel.png?secret) ![x](x" onerror="window.pwned=11)
[title](https://example.org/ "x\\" onmouseover=\\"window.pwned=12")

```html" onclick="window.pwned=13
<script>window.pwned = 14</script><img src=x onerror=window.pwned=15>
```

| <img src=x onerror=window.pwned=16> | b |
|--|--|
| `<script>window.pwned=17</script>` | <b onclick=window.pwned=18>x</b> |

<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.pwned=19&gt;">
"""

    def check_harmless(self, page):
        page.run("""(async () => {
            for (const element of document.querySelectorAll('.message *')) {
                for (const type of ['mouseover', 'click']) {
                    if (element.tagName !== 'BUTTON' && !element.closest('button')) {
                        element.dispatchEvent(new MouseEvent(type, {bubbles: false, cancelable: true}));
                    }
                }
            }
            await new Promise((resolve) => setTimeout(resolve, 50));
        })()""")
        self.assertIsNone(page.run("window.pwned ?? null"))
        bad = page.run("""[...document.querySelectorAll('.message .body *')].filter((element) =>
            /^(script|style|iframe|form|img|object|embed|math|base|link|meta)$/i.test(element.tagName) ||
            [...element.attributes].some(({name, value}) => /^on|^style$/i.test(name) ||
                (name === 'href' && !/^(https?:|mailto:)/.test(value)))).map((element) => element.outerHTML)""")
        self.assertEqual(bad, [])
        self.assertEqual([url for url in page.requested if "example.org" in url], [])

    def test_an_answer(self):
        def answer(reply, _):
            reply.delta(reasoning_content=self.HOSTILE)
            reply.say(*[self.HOSTILE[i:i + 7] for i in range(0, len(self.HOSTILE), 7)])

        self.script(answer)
        with self.open() as page:
            page.run("document.addEventListener('click', (event) => { if (event.target.closest('a')) event.preventDefault(); })")
            self.ask(page, self.HOSTILE.replace("\n", " "))
            self.wait_for_answer(page)
            page.click(".reasoning summary")
            page.wait_for("document.querySelector('.reasoning-text').innerText.length > 100")
            self.assertIn("window.pwned = 1", page.text(f"{LAST} .content"), "markup is shown as text")
            self.check_harmless(page)
            link = page.run(f"(() => {{ const a = document.querySelector('{LAST} .content a[href^=\"https://example.org/pixel\"]');"
                            "return [a.innerText, a.target, a.rel]; })()")
            self.assertEqual(link, ["image", "_blank", "noopener noreferrer nofollow"])
            self.reload(page)
            page.wait_for("document.querySelector('.message.assistant')")
            self.check_harmless(page)

    def test_an_imported_file(self):
        text = "<img src=x onerror=window.pwned=1>"
        node = {"id": "a", "parent": None, "role": "user", "content": text, "children": ["b"], "current": "7",
                "reasoning": 3, "toolCalls": [{"name": text, "arguments": text}, None, 7], "stats": {"__proto__": text}}
        answer = {**node, "id": "b", "role": "assistant", "children": [], "model": text, "finish": text,
                  "stats": {"outputTokens": text, "tokensPerSecond": 1e308}}
        good = {"id": text, "title": text, "created": text, "updated": -1, "nodes": {"a": node, "b": answer},
                "root": {"children": ["a"], "current": 9}}
        loop = {**good, "nodes": {"a": {**node, "children": ["a"]}}}
        missing = {**good, "nodes": {"a": {**node, "children": ["constructor"]}}}
        files = [("not JSON", "{"), ("no conversations", "[]"), ("no conversations", '{"format": "quire-conversations"}')]
        files += [(said, json.dumps({"format": "quire-conversations", "version": 1, "conversations": [each]}))
                  for said, each in (("appears twice", loop), ("is missing", missing), ("no nodes", None))]
        with self.open() as page, tempfile.TemporaryDirectory() as folder:
            for said, content in files:
                self.import_file(page, folder, content)
                page.wait_for(f"document.querySelector('#banner').innerText.includes({json.dumps(said)})")
            self.assertFalse(page.exists("#conversations li"))
            self.import_file(page, folder, json.dumps(
                {"format": "quire-conversations", "version": 1, "conversations": [good]}))
            page.wait_for("document.querySelector('.message.assistant')")
            self.assertEqual(page.text("#title"), text)
            self.assertFalse(page.exists("#banner"))
            self.check_harmless(page)

    def import_file(self, page, folder, content):
        path = pathlib.Path(folder) / "file.json"
        path.write_text(content)
        page.choose_file("#import-file", path)


if __name__ == "__main__":
    unittest.main()
