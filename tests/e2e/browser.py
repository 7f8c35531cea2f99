"""A headless Chromium, driven through the Chrome DevTools Protocol over a pipe."""

import base64
import contextlib
import itertools
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading

TIMEOUT_S = 120
KEYS = {
    "Enter": (13, "\r"), "Escape": (27, None), "Tab": (9, None), "ArrowUp": (38, None), "PageUp": (33, None),
    "Backspace": (8, None), " ": (32, " "), "/": (191, "/"), "k": (75, "k"),
}
MODIFIERS = {"alt": 1, "ctrl": 2, "meta": 4, "shift": 8}


def find_chromium():
    """Its path, or None where no Chromium is installed."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One browser process; each page() has cookies and storage of its own."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        from_browser, browser_out = os.pipe()
        browser_in, to_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        held = (os.dup(browser_in), os.dup(browser_out))

        def place():
            high = [os.dup(os.dup(os.dup(fd))) for fd in held]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [find_chromium(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-extensions", "--force-color-profile=srgb", "--lang=en-US",
             f"--user-data-dir={self._folder.name}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=place, start_new_session=True)
        for fd in (browser_in, browser_out, *held):
            os.close(fd)
        self._to = os.fdopen(to_browser, "wb", buffering=0)
        self._from = os.fdopen(from_browser, "rb")
        self._ids = itertools.count(1)
        self._replies = {}
        self._listeners = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        pending = b""
        while True:
            try:
                piece = os.read(self._from.fileno(), 1 << 16)
            except OSError:
                piece = b""
            if not piece:
                break
            *messages, pending = (pending + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._replies.pop(message["id"]).put(message)
                elif message.get("sessionId") in self._listeners:
                    self._listeners[message["sessionId"]](message["method"], message.get("params", {}))
        for reply in list(self._replies.values()):
            reply.put({"error": {"message": "the browser ended"}})

    def call(self, method, session=None, **parameters):
        """The result of a command; raises AssertionError where the browser says no, or nothing."""
        number = next(self._ids)
        reply = self._replies[number] = queue.Queue()
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        with self._lock:
            self._to.write(json.dumps(message).encode() + b"\0")
        try:
            answer = reply.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"the browser did not answer {method}") from None
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    @contextlib.contextmanager
    def page(self, width=1280, height=800, **media):
        """A fresh page; `media`: prefers_color_scheme="dark" and the like."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        try:
            with self.tab(context) as page:
                page.resize(width, height)
                page.emulate(**media)
                yield page
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)

    @contextlib.contextmanager
    def tab(self, context):
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        self._listeners[session] = page.event
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{domain}.enable")
            # Each behaves as the one in front.
            page.call("Emulation.setFocusEmulationEnabled", enabled=True)
            yield page
        finally:
            del self._listeners[session]

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=10)
        self._to.close()
        self._from.close()
        shutil.rmtree(self._folder.name, ignore_errors=True)
        self._folder.cleanup()


class Page:
    def __init__(self, browser, session, context):
        self._browser = browser
        self._session = session
        self._context = context
        self.problems = []  # exceptions and console errors: sentences
        self.requested = []  # URLs

    def event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.problems.append(str([each.get("value", each.get("description")) for each in parameters["args"]]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog said {parameters['message']}")

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def run(self, expression):
        """What JavaScript makes of it, promises waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait_for(self, condition):
        """Until a JavaScript expression is true."""
        held = self.run(f"""new Promise((resolve) => {{
            const end = Date.now() + {(TIMEOUT_S - 10) * 1000};
            const look = () => {{
                let value = null;
                try {{ value = ({condition}); }} catch (error) {{ value = null; }}
                if (value || Date.now() > end) resolve(Boolean(value)); else setTimeout(look, 15);
            }};
            look();
        }})""")
        if not held:
            text = self.run("document.body ? document.body.innerText.slice(-1500) : ''")
            raise AssertionError(f"{condition} did not become true; problems: {self.problems}; the page says:\n{text}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait_for(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def reload(self):
        self.run("window.beforeReload = true")
        self.call("Page.reload")
        self.wait_for("!window.beforeReload && document.readyState === 'complete'")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def exists(self, selector):
        """Whether there is such an element, and it is shown."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].some(e => e.checkVisibility({{visibilityProperty: true}}))")

    def click(self, selector):
        """A real click in the middle of the first such element that is shown."""
        self.wait_for(f"""(() => {{
            const all = [...document.querySelectorAll({json.dumps(selector)})];
            window.clicked = all.find(e => e.checkVisibility({{visibilityProperty: true}}));
            return !!window.clicked;
        }})()""")
        x, y = self.run("""(() => {
            clicked.scrollIntoView({block: 'nearest'});
            const box = clicked.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        })()""")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, *modifiers):
        code, text = KEYS[key]
        flags = sum(MODIFIERS[name] for name in modifiers)
        typed = {"text": text} if text and "ctrl" not in modifiers else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": flags}
        self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", **common, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def wheel(self, delta_y):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=600, y=300, deltaX=0, deltaY=delta_y)

    @contextlib.contextmanager
    def another_tab(self, url):
        """A page with the same storage."""
        with self._browser.tab(self._context) as page:
            page.resize(1280, 800)
            page.open(url)
            yield page

    def download_to(self, folder):
        self._browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder),
                           browserContextId=self._context)

    def choose_file(self, selector, path):
        """In a file field, as its dialog would."""
        document = self.call("DOM.getDocument")["root"]["nodeId"]
        field = self.call("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 600)

    def emulate(self, **media):
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path, **options):
        data = self.call("Page.captureScreenshot", **{"format": "png", **options})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
