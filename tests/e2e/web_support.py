"""What the tests of the web page share: one browser and one quire for all of a file's tests."""

import contextlib
import functools
import threading
import unittest

import browser
from server_support import serving
from web_mock import MockServer

PROMPT = "#prompt"
LAST = ".message:last-child"

shared = {}


def set_up():
    """For setUpModule: starts both; skips the file where there is no browser."""
    if browser.find_chromium() is None:
        print("The web page is not tested: no Chromium is installed.")
        raise unittest.SkipTest("no Chromium is installed")
    shared["browser"] = browser.Browser()
    unittest.addModuleCleanup(shared["browser"].close)
    shared["quire"] = unittest.enterModuleContext(serving())


@functools.cache
def served(path):
    status, headers, body = shared["quire"].get(path)
    if status != 200:
        return None
    # The connection is the mock's.
    dropped = ("Connection", "Content-Length", "Date", "Server")
    return {name: value for name, value in headers.items() if name not in dropped}, body


def page_file(path):
    """(headers, body) of a file of the page as quire serves it; None for any other path."""
    return served(path) if path == "/" or path.startswith("/page/") else None


class PageTest(unittest.TestCase):
    @property
    def browser(self):
        return shared["browser"]

    @contextlib.contextmanager
    def fresh_page(self, url, *size, problems=(), **media):
        """A page that is open and ready. Errors in its console fail the test, but for those that hold
        one of `problems`."""
        with self.browser.page(*size, **media) as page:
            page.open(url)
            page.wait_for("document.querySelector('.prompts') && document.querySelector('#model-name').textContent")
            yield page
            unexpected = [each for each in page.problems if not any(part in each for part in problems)]
            self.assertEqual(unexpected, [])

    def ask(self, page, text):
        page.click(PROMPT)
        page.type(text)
        page.press("Enter")

    def reload(self, page):
        """Reloads the page once everything that it began to write is kept: a browser reads after that."""
        page.run("""new Promise((resolve, reject) => {
            const opened = indexedDB.open('quire');
            opened.onerror = reject;
            opened.onsuccess = () => {
                const reading = opened.result.transaction('conversations').objectStore('conversations').count();
                reading.onerror = reject;
                reading.onsuccess = () => { opened.result.close(); resolve(); };
            };
        })""")
        page.reload()

    def wait_for_answer(self, page):
        page.wait_for(f"document.querySelector('{LAST}.assistant') && !document.querySelector('.message.active')")


class Scripted(PageTest):
    def setUp(self):
        self.mock = MockServer(page_file)
        self.addCleanup(self.mock.close)

    def open(self, *size, **options):
        return self.fresh_page(self.mock.url, *size, **options)

    def script(self, *answers):
        self.mock.script.extend(answers)

    def event(self):
        """Something that a scripted answer waits for; it comes at the test's end if not before."""
        event = threading.Event()
        self.addCleanup(event.set)
        return event
