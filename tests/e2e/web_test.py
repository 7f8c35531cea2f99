"""The web page on quire with the bundled model; its looks, its keys, its engine view, its parsers."""

import json
import unittest

import web_support
from server_support import serving
from support import SOURCE_DIR
from web_support import LAST, PageTest, Scripted, shared

NO_OVERFLOW = ("document.documentElement.scrollWidth <= innerWidth && "
               "document.querySelector('#scroller').scrollWidth <= innerWidth")

setUpModule = web_support.set_up


class Served(PageTest):
    """The page on quire itself, with the bundled model."""

    def open(self, *size, **options):
        return self.fresh_page(shared["quire"].address, *size, **options)

    def greedy(self, page):
        page.click("#toggle-settings")
        page.click("#setting-temperature")
        page.type("0")
        page.click("#close-settings")

    def test_a_conversation(self):
        with self.open() as page:
            self.greedy(page)
            self.ask(page, "What does ephemeral mean?")
            self.wait_for_answer(page)
            first = page.text(f"{LAST} .content").strip()
            self.assertIn("ephemeral (adjective)", first)
            notes = page.text(f"{LAST} .notes")
            for part in ("tokens/s", "to first token", "output tokens", "prompt tokens cached"):
                self.assertIn(part, notes)
            self.ask(page, "use it in a sentence")
            self.wait_for_answer(page)
            self.assertIn("ephemeral", page.text(f"{LAST} .content").lower())
            page.click(".message:nth-child(2) [data-act=retry]")
            page.wait_for("document.querySelectorAll('.message').length === 2")
            self.wait_for_answer(page)
            self.assertEqual(page.text(f"{LAST} .content").strip(), first, "the same greedy answer")
            self.assertEqual(page.text(f"{LAST} .versions"), "2/2")
            self.reload(page)
            page.wait_for(f"document.querySelector('{LAST} .content')")
            self.assertEqual(page.text(f"{LAST} .content").strip(), first)

    def test_a_conversation_with_an_adapter(self):
        folder = SOURCE_DIR / "models" / "lexicon-pirate"
        with serving("--enable-lora", "--lora-modules", f"pirate={folder}") as server:
            with self.fresh_page(server.address) as page:
                self.greedy(page)
                page.run("""(() => { const list = document.querySelector('#setting-model');
                    list.value = 'pirate'; list.dispatchEvent(new Event('change', { bubbles: true })); })()""")
                page.wait_for("document.querySelector('#model-name').textContent === 'pirate'")
                self.ask(page, "What does ephemeral mean?")
                self.wait_for_answer(page)
                self.assertTrue(page.text(f"{LAST} .content").strip().endswith("Arr, matey!"))

    def test_what_the_server_refuses_is_said(self):
        with self.open(problems=["400"]) as page:
            page.click("#toggle-settings")
            page.click("#setting-max_tokens")
            page.type("1000000")
            self.ask(page, "define apple")
            page.wait_for("document.querySelector('.notice.failed')?.innerText.includes('max_tokens')")

    def test_the_engine_view(self):
        with self.open() as page:
            page.click("#toggle-engine")
            page.wait_for("document.querySelector('[data-figure=running]').innerText === '0'")
            page.wait_for("document.querySelector('[data-figure=generated]').innerText !== '–'")
            self.assertRegex(page.text("[data-figure=kv]"), r"^\d+\.\d %$")

    def test_a_key(self):
        with serving("--api-key", "sk-one") as quire, self.browser.page() as page:
            page.open(quire.address)
            page.wait_for("document.querySelector('dialog[open]')")
            page.type("sk-one")
            page.press("Enter")
            page.wait_for("document.querySelector('#model-name').textContent")
            self.ask(page, "define apple")
            self.wait_for_answer(page)
            self.assertIn("apple", page.text(f"{LAST} .content"))


class Surroundings(Scripted):
    METRICS = ('# HELP vllm:num_requests_running x\nvllm:num_requests_running{{model_name="a b"}} 2\n'
               'vllm:num_requests_running{{model_name="c"}} 1\nvllm:num_requests_waiting 4\n'
               "vllm:kv_cache_usage_perc 0.125\nvllm:generation_tokens_total {0}\nvllm:prompt_tokens_total 10\n")
    DRAFTS = "vllm:spec_decode_num_drafts_total 20\nvllm:spec_decode_num_accepted_tokens_total 30\n"

    def test_engine_view(self):
        self.mock.metrics = lambda: self.METRICS.format(1000 * self.mock.metrics_asked)
        with self.open() as page:
            self.assertEqual(self.mock.metrics_asked, 0)
            page.click("#toggle-engine")
            figure = "document.querySelector('[data-figure={}]').innerText"
            page.wait_for(f"{figure.format('running')} === '3'")
            self.assertEqual(page.text("[data-figure=waiting]"), "4")
            self.assertEqual(page.text("[data-figure=kv]"), "12.5 %")
            page.wait_for(f"Number({figure.format('generated')}) > 0")
            self.assertEqual(page.text("[data-figure=prefilled]"), "0.0")
            accepted = "document.querySelector('[data-figure=accepted]').parentElement"
            self.assertTrue(page.run(f"{accepted}.hidden && getComputedStyle({accepted}).display === 'none'"))
            self.mock.metrics = lambda: (self.METRICS + self.DRAFTS).format(1000 * self.mock.metrics_asked)
            page.wait_for(f"!{accepted}.hidden")
            self.assertEqual(page.text("[data-figure=accepted]"), "2.50")
            drawn = page.run("""(() => { const canvas = document.querySelector('.plot canvas');
                return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean); })()""")
            self.assertTrue(drawn)
            page.click("#toggle-engine")
            page.run("new Promise((resolve) => setTimeout(resolve, 100))")
            asked = self.mock.metrics_asked
            page.run("new Promise((resolve) => setTimeout(resolve, 2500))")
            self.assertEqual(self.mock.metrics_asked, asked, "a closed view asks for nothing")

    def test_light_and_dark(self):
        background = "getComputedStyle(document.body).backgroundColor"
        light, dark = "rgb(245, 246, 243)", "rgb(20, 24, 26)"
        with self.open(prefers_color_scheme="dark") as page:
            self.assertEqual(page.run(background), dark)
            page.click("#theme")
            self.assertEqual(page.run(background), light)
            self.reload(page)
            self.assertEqual(page.run(background), light)
            page.click("#theme")
            page.emulate(prefers_color_scheme="light")
            self.assertEqual(page.run(background), dark)
            page.click("#theme")
            self.assertEqual(page.run(background), light)

    def test_colours_have_contrast(self):
        pairs = [("ink", "leaf"), ("ink", "paper"), ("muted", "leaf"), ("muted", "paper"), ("accent", "leaf"),
                 ("accent-ink", "accent"), ("danger", "leaf"), ("ink", "code")]
        pairs += [(f"c-{name}", "code") for name in ("comment", "keyword", "string", "number", "title", "type", "meta")]
        for scheme in ("light", "dark"):
            with self.open(prefers_color_scheme=scheme) as page:
                for front, back in pairs:
                    colours = page.run(f"(() => {{ const s = getComputedStyle(document.documentElement);"
                                       f"return [s.getPropertyValue('--{front}'), s.getPropertyValue('--{back}')]; }})()")
                    self.assertGreaterEqual(contrast(*colours), 4.5, (scheme, front, back))

    def test_a_phone(self):
        wide = ("word" * 100 + "\n\n```\n" + "x" * 300 + "\n```\n\n| " + " | ".join(["column"] * 12) + " |\n|" + "--|" * 12 +
                "\n| " + " | ".join(["cell"] * 12) + " |\n\n`" + "y" * 200 + "` https://example.org/" + "z" * 200)
        self.script(lambda reply, _: reply.say(wide))
        with self.open(360, 740) as page:
            self.assertFalse(page.exists("#sidebar"))
            self.assertTrue(page.run(NO_OVERFLOW))
            self.ask(page, "w" * 200)
            self.wait_for_answer(page)
            self.assertTrue(page.run(NO_OVERFLOW))
            page.click("#toggle-engine")
            self.assertTrue(page.run(NO_OVERFLOW))
            page.click("#toggle-engine")
            page.click("#toggle-settings")
            self.assertTrue(page.run(NO_OVERFLOW))
            page.press("Escape")
            self.assertFalse(page.exists("#settings"))
            page.click("#toggle-sidebar")
            self.assertTrue(page.run("document.querySelector('.page').inert"))
            self.assertTrue(page.run(NO_OVERFLOW))
            page.click("#conversations .open")
            self.assertFalse(page.exists("#sidebar"))
            self.assertFalse(page.run("document.querySelector('.page').inert"))

    def test_keyboard(self):
        focused = "document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.className"
        with self.open() as page:
            self.assertEqual(page.run(focused), "prompt")
            page.type("first line")
            page.press("Enter", "shift")
            page.type("second line")
            page.press("Enter")
            self.wait_for_answer(page)
            self.assertEqual(self.mock.requests[0]["messages"][0]["content"], "first line\nsecond line")
            page.run("document.activeElement.blur()")
            page.press("/")
            self.assertEqual(page.run(focused), "prompt")
            self.assertEqual(page.run("document.querySelector('#prompt').value"), "")
            page.run("document.querySelector('#theme').focus()")
            page.press("k", "ctrl")
            self.assertEqual(page.run(focused), "prompt")
            page.run("document.querySelector('.skip').focus()")
            seen = [page.run(focused)]
            for _ in range(60):
                page.press("Tab")
                seen.append(page.run(focused))
                if seen[-1] == "send":
                    break
                outlined = page.run("(() => { const style = getComputedStyle(document.activeElement);"
                                    "return style.outlineStyle !== 'none' || !!document.activeElement.closest('.composer:focus-within'); })()")
                self.assertTrue(outlined, seen[-1])
            self.assertEqual(seen, [
                "skip", "brand", "new", "open", "Rename first line", "Delete first line", "export", "import", "link",
                "toggle-sidebar", "toggle-engine", "theme", "toggle-settings", "Copy", "Edit", "Copy", "Answer again",
                "prompt", "send"])

    def test_the_end_stays_in_view_until_the_reader_scrolls(self):
        more = self.event()

        def answer(reply, _):
            reply.say_lines = [reply.delta(content=f"line {i}\n\n") for i in range(80)]
            more.wait()
            for i in range(80):
                reply.delta(content=f"later {i}\n\n")
            reply.end()

        self.script(answer)
        distance = "(() => { const s = document.querySelector('#scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight; })()"
        with self.open() as page:
            self.ask(page, "Hello?")
            page.wait_for(f"document.querySelector('{LAST} .content').innerText.includes('line 79')")
            page.wait_for(f"{distance} < 3")
            page.run("document.querySelector('#scroller').scrollBy(0, -200)")
            page.wait_for("!document.querySelector('#to-end').hidden")
            more.set()
            self.wait_for_answer(page)
            self.assertGreater(page.run(distance), 500)
            page.click("#to-end")
            page.wait_for(f"{distance} < 3 && document.querySelector('#to-end').hidden")


class Modules(Scripted):
    """The parsers by themselves, in the browser that runs them."""

    def run_module(self, code):
        with self.open() as page:
            return page.run(f"(async () => {{ {code} }})()")

    def test_sse(self):
        stream = "\ufeff: comment\r\ndata: a\r\ndata:b\n\nevent: x\rdata\r\rdata:  c\nid: 1\n\ndata: unfinished\n"
        result = self.run_module(f"""
            const {{ SseParser }} = await import('/page/sse.js');
            const text = {json.dumps(stream)};
            const split = (size) => {{
                const parser = new SseParser();
                const events = [];
                for (let i = 0; i < text.length; i += size) events.push(...parser.push(text.slice(i, i + size)));
                return events;
            }};
            return [1, 2, 3, 7, 1000].map(split);""")
        self.assertEqual(result, [["a\nb", "", " c"]] * 5)

    def test_prometheus(self):
        text = ('# TYPE a counter\nquire:x_total{a="b",c="} 7"} 3 1700000000\nquire:x_total{a="c"} 4.5e1\n'
                "other_x_total 9\nquire:nan NaN\nplain 2\nbroken\n quire:y 1\n")
        result = self.run_module(f"""
            const {{ parseMetrics, metric }} = await import('/page/prometheus.js');
            const sums = parseMetrics({json.dumps(text)});
            return ['x_total', 'nan', 'plain', 'total', 'y'].map((name) => metric(sums, name));""")
        self.assertEqual(result, [48, None, 2, None, None])

    def test_rates(self):
        result = self.run_module("""
            const { engineSample } = await import('/page/prometheus.js');
            const at = (time, tokens) => ({ time, sums: new Map([['quire:generation_tokens_total', tokens]]) });
            return [[at(1000, 5), null], [at(3000, 25), at(1000, 5)], [at(3000, 2), at(1000, 5)]]
                .map(([now, before]) => engineSample(now, before).generated);""")
        self.assertEqual(result, [None, 10, None])

    def test_mean_acceptance(self):
        result = self.run_module("""
            const { engineSample } = await import('/page/prometheus.js');
            const at = (time, drafts, accepted) => ({ time, sums: new Map([['quire:spec_decode_num_drafts_total', drafts],
                ['quire:spec_decode_num_accepted_tokens_total', accepted]]) });
            return [[at(1, 0, 0), null], [at(1, 4, 6), null], [at(2, 6, 12), at(1, 4, 6)], [at(2, 4, 6), at(1, 4, 6)],
                [at(2, 1, 1), at(1, 4, 6)]].map(([now, before]) => engineSample(now, before).accepted);""")
        self.assertEqual(result, [None, 2.5, 4, 2.5, 2])

    def test_kept_settings_may_be_anything(self):
        result = self.run_module("""
            const { readSettings, requestFields, DEFAULTS } = await import('/page/settings.js');
            const odd = [null, '', '{', '[]', '7', '{"temperature": 3, "top_p": "9", "thinking": "x", "system": null}'];
            return odd.map((text) => JSON.stringify(readSettings(text)) === JSON.stringify(DEFAULTS));""")
        self.assertEqual(result, [True] * 6)

    def test_titles(self):
        result = self.run_module("""
            const { titleFrom } = await import('/page/tree.js');
            return ['  a\\tb\\nc', 'x'.repeat(60), '🙂'.repeat(61)].map(titleFrom);""")
        self.assertEqual(result, ["a b", "x" * 60, "🙂" * 59 + "…"])


def contrast(front, back):
    """WCAG 2's contrast ratio of two colours like #rrggbb."""
    def luminance(colour):
        parts = [int(colour.strip()[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


if __name__ == "__main__":
    unittest.main()
