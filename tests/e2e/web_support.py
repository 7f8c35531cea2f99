"""What the tests of the web page share: one browser and one quire for all of a file's tests."""

import contextlib
import functools
import re
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import browser
from support import BINARY
from web_mock import MockServer

PROMPT = "#prompt"
LAST = ".message:last-child"

shared = {}


def set_up():
    """For setUpModule: starts both; skips the file where there is no browser."""
    if browser.find_chromium() is None:
        raise unittest.SkipTest("no Chromium is installed")
    shared["browser"] = browser.Browser()
    unittest.addModuleCleanup(shared["browser"].close)
    shared["quire"] = unittest.enterModuleContext(serve())


@contextlib.contextmanager
def serve(*arguments):
    """The address of a `quire serve` with the bundled model."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([BINARY, "serve", "--port", "0", *arguments], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT)
        try:
            yield address_of(process, log)
        finally:
            process.terminate()
            process.wait()


def address_of(process, log):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read()):
            return found[0] + "/"
        time.sleep(0.02)
    log.seek(0)
    raise AssertionError(f"quire serve did not say where it listens: {log.read()}")


@functools.cache
def served(path):
    try:
        with urllib.request.urlopen(shared["quire"].rstrip("/") + path, timeout=60) as response:
            # The connection is the mock's.
            headers = {name: value for name, value in response.headers.items()
                       if name not in ("Connection", "Content-Length", "Date", "Server")}
            return headers, response.read()
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def page_file(path):
    """(headers, body) of a file of the page as quire serves it; None where it serves none."""
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
