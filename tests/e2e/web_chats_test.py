"""Conversations in the web page: branches, what the browser keeps, settings, and trouble with the server."""

import json
import pathlib
import tempfile
import time
import unittest

import web_support
from web_support import LAST, Scripted

setUpModule = web_support.set_up


class Trees(Scripted):
    def test_retry_edit_and_branches(self):
        self.script(*[lambda reply, _, text=text: reply.say(text) for text in ("one", "two", "three", "four")])
        with self.open() as page:
            self.ask(page, "First question")
            self.wait_for_answer(page)
            page.click(f"{LAST} [data-act=retry]")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.trim() === 'two'")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .versions"), "2/2")
            page.click(f"{LAST} [aria-label='Previous version']")
            self.assertEqual(page.text(f"{LAST} .content").strip(), "one")
            self.assertEqual(page.text(f"{LAST} .versions"), "1/2")
            # What follows belongs to the version that is shown.
            self.ask(page, "Second question")
            self.wait_for_answer(page)
            self.assertEqual([message["content"] for message in self.mock.requests[2]["messages"]],
                             ["First question", "one", "Second question"])
            # Up edits the last question.
            page.press("ArrowUp")
            page.wait_for("document.activeElement.closest('.editor')")
            page.type(", changed")
            page.press("Enter")
            page.wait_for(f"document.querySelector('{LAST} .content')?.innerText.trim() === 'four'")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[3]["messages"][2]["content"], "Second question, changed")
            self.assertEqual(page.text(".message:nth-child(3) .versions"), "2/2")
            page.click(".message:nth-child(3) [aria-label='Previous version']")
            self.assertEqual(page.text(f"{LAST} .content").strip(), "three")
            self.reload(page)
            page.wait_for(f"document.querySelector('{LAST} .content')?.innerText.trim() === 'three'")
            self.assertEqual(page.text(".message:nth-child(2) .versions"), "1/2")

    def test_a_very_long_conversation_is_drawn_in_slices(self):
        count = 20001
        nodes = {str(i): {"role": "assistant" if i % 2 else "user", "content": f"message {i}",
                          "children": [str(i + 1)] if i + 1 < count else [], "current": 0}
                 for i in range(count)}
        conversation = {"title": "Long", "nodes": nodes, "root": {"children": ["0"], "current": 0}}
        with self.open() as page, tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "long.json"
            file.write_text(json.dumps({"format": "quire-conversations", "version": 1,
                                        "conversations": [conversation]}))
            page.choose_file("#import-file", file)
            page.wait_for(f"document.querySelector('{LAST}')?.innerText.includes('message {count - 1}')")
            drawn = "document.querySelectorAll('.message').length"
            self.assertEqual(page.run(drawn), 200)
            self.assertEqual(page.run("document.querySelector('.earlier').innerText"),
                             f"Show earlier messages ({count - 200})")
            page.click(".earlier")
            self.assertEqual(page.run(drawn), 400)
            self.ask(page, "And now?")
            self.wait_for_answer(page)
            self.assertEqual(page.run(drawn), 400)

    def test_conversations_are_kept_renamed_exported_and_deleted(self):
        with self.open() as page, tempfile.TemporaryDirectory() as folder:
            for text in ("Older", "Newer"):
                self.ask(page, text)
                self.wait_for_answer(page)
                page.click("#new")
            self.reload(page)
            page.wait_for("document.querySelectorAll('#conversations li').length === 2")
            titles = "[...document.querySelectorAll('#conversations .title')].map((each) => each.innerText)"
            self.assertEqual(page.run(titles), ["Newer", "Older"])
            page.click("#conversations li:last-child .open")
            page.wait_for("document.querySelector('.message.user .content')?.innerText === 'Older'")
            page.click("#conversations li:last-child [data-act=rename]")
            page.type("Renamed")
            page.press("Enter")
            page.wait_for("document.querySelector('#title').innerText === 'Renamed'")
            page.download_to(folder)
            page.click("#export")
            exported = pathlib.Path(folder) / "quire-conversations.json"
            deadline = time.monotonic() + 60
            while not exported.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            conversations = json.loads(exported.read_text())["conversations"]
            self.assertEqual([each["title"] for each in conversations], ["Newer", "Renamed"])
            page.click("#new")
            page.click("#conversations li:last-child [data-act=delete]")
            page.click(".dialog .danger")
            page.wait_for("document.querySelectorAll('#conversations li').length === 1")
            self.assertTrue(page.exists(".welcome"))
            self.reload(page)
            page.wait_for("document.querySelectorAll('#conversations li').length === 1")
            page.choose_file("#import-file", exported)
            page.wait_for("document.querySelectorAll('#conversations li').length === 3")

    def test_two_tabs(self):
        with self.open() as page:
            self.ask(page, "From the first tab")
            self.wait_for_answer(page)
            self.reload(page)
            page.wait_for("window.row = document.querySelector('#conversations li')")
            with page.another_tab(self.mock.url) as other:
                other.click("#conversations .open")
                other.wait_for("document.querySelector('.message.assistant')")
                self.ask(other, "From the second tab")
                self.wait_for_answer(other)
                page.wait_for("document.querySelectorAll('.message').length === 4")
                # Another tab's work does not take a row from under the pointer.
                self.assertTrue(page.run("window.row.isConnected"))
                page.click("#conversations [data-act=delete]")
                page.click(".dialog .danger")
                other.wait_for("!document.querySelector('#conversations li') && document.querySelector('.welcome')")

    def test_an_answer_goes_on_in_the_background(self):
        more = self.event()

        def answer(reply, _):
            reply.delta(content="begun")
            more.wait()
            reply.say(" and ended")

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Slow")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('begun')")
            page.click("#new")
            self.ask(page, "Quick")
            self.wait_for_answer(page)
            self.assertTrue(page.exists("#conversations .busy"))
            more.set()
            page.wait_for("!document.querySelector('#conversations .busy')")
            page.press("Escape")
            page.click("#conversations li:first-child .open")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('begun and ended')")


class Settings(Scripted):
    def fill(self, page, name, text):
        page.click(f"#setting-{name}")
        page.run(f"document.querySelector('#setting-{name}').select()")
        page.type(text)

    def test_settings_are_sent_kept_and_reset(self):
        values = {"temperature": ("0.5", 0.5), "top_p": ("0.9", 0.9), "top_k": ("40", 40), "min_p": ("0.05", 0.05),
                  "max_tokens": ("77", 77), "seed": ("123", 123), "repetition_penalty": ("1.1", 1.1),
                  "presence_penalty": ("-0.5", -0.5), "frequency_penalty": ("0.25", 0.25),
                  "stop": ("END\n\\n\\n", ["END", "\n\n"])}
        with self.open() as page:
            page.click("#toggle-settings")
            self.fill(page, "system", "Be brief.")
            for name, (text, _) in values.items():
                self.fill(page, name, text)
            page.run("(() => { const field = document.querySelector('#setting-thinking'); field.value = 'off';"
                     "field.dispatchEvent(new Event('change')); })()")
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.reload(page)
            page.wait_for("document.querySelector('#model-name').textContent")
            page.click("#new")
            self.ask(page, "Again?")
            self.wait_for_answer(page)
            for fields in self.mock.requests:
                self.assertEqual({name: fields.get(name) for name in values},
                                 {name: value for name, (_, value) in values.items()})
                self.assertEqual(fields["messages"][0], {"role": "system", "content": "Be brief."})
                self.assertEqual(fields["chat_template_kwargs"], {"enable_thinking": False})
            page.click("#toggle-settings")
            page.click("#reset-settings")
            self.ask(page, "Plain?")
            self.wait_for_answer(page)
            self.assertEqual(set(self.mock.requests[2]), {"model", "messages", "stream", "stream_options"})
            self.assertEqual(self.mock.requests[2]["model"], "mock/model-1")

    def test_what_is_wrong_is_said_and_not_sent(self):
        wrong = {"temperature": "hot", "top_p": "0", "top_k": "1.5", "seed": "-1", "presence_penalty": "3",
                 "tools": '{"a": 1}', "json_schema": "[]"}
        with self.open() as page:
            page.click("#toggle-settings")
            for name, text in wrong.items():
                self.fill(page, name, text)
                self.assertEqual(page.run(f"document.querySelector('#setting-{name}').getAttribute('aria-invalid')"), "true")
                self.assertTrue(page.text(f"#setting-{name}-error"), name)
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(set(self.mock.requests[0]), {"model", "messages", "stream", "stream_options"})


class Adapters(Scripted):
    def test_they_stand_in_the_list_of_models(self):
        self.mock.adapters = [{"id": "caps", "parent": "mock/model-1"}, {"id": "<b>", "parent": "org/other"}]
        with self.open() as page:
            groups = page.run("""[...document.querySelectorAll('#setting-model optgroup')].map((group) =>
                [group.label, ...[...group.children].map(({ value }) => value)])""")
            self.assertEqual(groups, [["Adapters of mock/model-1", "caps"], ["Adapters of org/other", "<b>"]])
            self.assertEqual(page.run("document.querySelector('#setting-model').value"), "mock/model-1")
            page.run("""(() => { const list = document.querySelector('#setting-model');
                list.value = 'caps'; list.dispatchEvent(new Event('change', { bubbles: true })); })()""")
            page.wait_for("document.querySelector('#model-name').textContent === 'caps'")
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[0]["model"], "caps")


class JsonAnswers(Scripted):
    def test_a_schema_is_asked_for_and_its_answer_is_a_tree(self):
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        answer = {"word": "<b>apple</b>", "senses": [1, 2.5, None, True, {}], "deep": {"a": {"b": {"c": "x"}}}}
        self.script(lambda reply, _: reply.say(json.dumps(answer)), lambda reply, _: reply.say("[not JSON"))
        with self.open() as page:
            page.click("#toggle-settings")
            page.click("#setting-json_schema")
            page.type(json.dumps(schema))
            self.ask(page, "define apple")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[0]["response_format"],
                             {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})
            text = page.text(".json-tree")
            for shown in ['word: "<b>apple</b>"', "senses: [5]", "0: 1", "1: 2.5", "2: null", "3: true", "4: {0}"]:
                self.assertIn(shown, text)
            self.assertNotIn('c: "x"', text)  # branches that are deep are closed
            page.click(".json-tree details:not([open]) > summary")
            self.assertIn('c: "x"', page.text(".json-tree"))
            self.assertFalse(page.exists(".json-tree b"))
            self.ask(page, "And now?")
            self.wait_for_answer(page)
            self.assertEqual(page.run("document.querySelectorAll('.json-tree').length"), 1)


class Trouble(Scripted):
    def test_a_key_is_asked_for(self):
        self.mock.key = "sk-right"
        with self.browser.page() as page:
            page.open(self.mock.url)
            page.wait_for("document.querySelector('dialog[open]')")
            page.type("sk-wrong")
            page.press("Enter")
            page.wait_for("document.querySelector('dialog[open] .error')?.innerText.includes('did not accept')")
            page.type("sk-right")
            page.press("Enter")
            page.wait_for("document.querySelector('#model-name').textContent === 'mock/model-1'")
            self.ask(page, "Hello?")
            self.wait_for_answer(page)
            self.assertEqual(len(self.mock.requests), 1)
            self.assertIsNone(page.run("localStorage.getItem('quire.apiKey')"))
            self.reload(page)
            page.wait_for("document.querySelector('#model-name').textContent === 'mock/model-1'")
            # A key that is no longer taken is asked for again, and the question is not lost.
            self.mock.key = "sk-newer"
            self.ask(page, "Still there?")
            page.wait_for("document.querySelector('dialog[open]')")
            page.type("sk-newer")
            page.click("#keep-key")
            page.click("dialog .primary")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[1]["messages"][-1]["content"], "Still there?")
            self.assertEqual(page.run("localStorage.getItem('quire.apiKey')"), "sk-newer")
            page.click("#toggle-settings")
            page.click("#forget-key")
            self.assertIsNone(page.run("localStorage.getItem('quire.apiKey')"))

    def test_a_full_server_is_asked_again(self):
        self.script(lambda reply, _: reply.error(429, "The queue is full.", Retry_After="1"),
                    lambda reply, _: reply.error(503, "Still full.", Retry_After="100"),
                    lambda reply, _: reply.say("At last."))
        with self.open(problems=["429", "503"]) as page:
            self.ask(page, "Hello?")
            page.wait_for("/server is full. Asking again in (100|99|98) s/.test(document.querySelector('.notice')?.innerText)")
            page.click(".notice .button")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), "At last.")
            self.assertFalse(page.exists(".notice"))

    def test_waiting_for_a_full_server_can_be_stopped(self):
        self.script(lambda reply, _: reply.error(429, "The queue is full.", Retry_After="100"))
        with self.open(problems=["429"]) as page:
            self.ask(page, "Hello?")
            page.wait_for("document.querySelector('.notice')")
            page.press("Escape")
            self.wait_for_answer(page)
            self.assertFalse(page.exists(".notice"))
            self.assertEqual(len(self.mock.requests), 1)

    def test_what_came_before_a_break_stays(self):
        def broken(reply, _):
            reply.delta(content="Half of ")

        def failed(reply, _):
            reply.delta(content="Half of ")
            reply.event({"error": {"message": "The engine stopped.", "type": "internal", "code": 500}})

        self.script(broken, failed, lambda reply, _: reply.error(400, "temperature must be at most 100."))
        with self.open(problems=["400"]) as page:
            self.ask(page, "Hello?")
            for said in ("The connection ended before the answer did.", "The engine stopped."):
                page.wait_for(f"document.querySelector('{LAST} .notice')?.innerText.includes({json.dumps(said)})")
                self.assertEqual(page.text(f"{LAST} .content").strip(), "Half of")
                page.click(f"{LAST} .notice .button")
            page.wait_for(f"document.querySelector('{LAST} .notice')?.innerText.includes('at most 100')")
            page.click(f"{LAST} .notice .button")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), "Hello.")
            self.assertEqual(page.text(f"{LAST} .versions"), "4/4")

    def test_a_server_that_is_gone(self):
        with self.open(problems=["ERR_"]) as page:
            page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
            self.ask(page, "Hello?")
            page.wait_for("document.querySelector('.notice.failed')?.innerText.includes('cannot be reached')")
            page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
            page.click(".notice .button")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), "Hello.")

    def test_a_page_closed_while_it_is_answered(self):
        end = self.event()

        def answer(reply, _):
            reply.delta(content="Half")
            while not end.wait(0.05) and reply.delta(content=" more"):
                pass

        self.script(answer)
        with self.open() as page:
            self.ask(page, "Hello?")
            page.wait_for("document.querySelector('.message.assistant .content')?.innerText.includes('Half')")
            self.reload(page)
            page.wait_for("document.querySelector('.notice.failed')?.innerText.includes('closed before')")


if __name__ == "__main__":
    unittest.main()
