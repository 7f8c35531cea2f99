"""A server that behaves like the Hugging Face hub for one repository, with faults on demand.

Large files (LFS) are redirected to a storage server on another port, as the hub does it. Everything is
on the loopback interface, and ends with the context manager.
"""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclasses.dataclass
class Request:
    """What came in, and to which of the servers."""

    server: str  # "hub" or "storage"
    path: str
    query: str
    headers: dict


class Faults:
    """Names what goes wrong. `answers` go first, for a path that contains the key, one each."""

    def __init__(self):
        self.answers = {}  # part of a path: list of (status, headers)
        self.cuts = {}  # file: list of the numbers of bytes after which the connection is cut
        self.contents = {}  # file: list of wrong contents
        self.no_range = False
        self.chunk = None  # (bytes, seconds between them): a slow server
        self.hold = {}  # file: (bytes, event): waits there for the event


class FakeHub:
    def __init__(self, repository, files, lfs=(".safetensors",), commit=COMMIT):
        self.repository = repository
        self.files = dict(files)
        self.commit = commit
        self.lfs = lfs
        self.revisions = {"main": commit, commit: commit}
        self.faults = Faults()
        self.requests = []
        self.listing_changes = lambda listing: listing
        self.gated_token = None
        self.redirect_to = None  # instead of the storage server
        self.lock = threading.Lock()

    def is_lfs(self, name):
        return name.endswith(self.lfs)

    def etag(self, name):
        content = self.files[name]
        return hashlib.sha256(content).hexdigest() if self.is_lfs(name) else git_sha1(content)

    def listing(self):
        siblings = []
        for name, content in self.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": git_sha1(content)}
            if self.is_lfs(name):
                entry["lfs"] = {"sha256": self.etag(name), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return self.listing_changes({"id": self.repository, "sha": self.commit, "siblings": siblings})

    def count(self, part):
        return sum(part in request.path for request in self.requests)

    def take_answer(self, path):
        with self.lock:
            for part, answers in self.faults.answers.items():
                if part in path and answers:
                    return answers.pop(0)
        return None

    def take(self, faults, name):
        with self.lock:
            return faults[name].pop(0) if faults.get(name) else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None
    role = "hub"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        with self.hub.lock:
            self.hub.requests.append(Request(self.role, path, url.query, dict(self.headers)))
        answer = self.hub.take_answer(path)
        if answer is not None:
            return self.answer(*answer)
        if self.role == "storage":
            return self.send_file(path.removeprefix("/storage/"))
        return self.route(path)

    def route(self, path):
        hub = self.hub
        api = re.fullmatch(rf"/api/models/{hub.repository}(?:/revision/(.+))?", path)
        if api:
            if (api[1] or "main") not in hub.revisions:
                return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
            return self.answer(200, {"Content-Type": "application/json"}, json.dumps(hub.listing()).encode())
        file = re.fullmatch(rf"/{hub.repository}/resolve/([^/]+)/(.+)", path)
        if not file:
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        if file[2] not in hub.files or file[1] not in hub.revisions:
            return self.answer(404, {"X-Error-Code": "EntryNotFound"})
        if hub.gated_token and self.headers.get("Authorization") != f"Bearer {hub.gated_token}":
            return self.answer(403, {"X-Error-Code": "GatedRepo"})
        return self.resolve(file[2])

    def resolve(self, name):
        hub = self.hub
        headers = {"X-Repo-Commit": hub.commit, "ETag": f'"{hub.etag(name)}"'}
        if not hub.is_lfs(name):
            return self.send_file(name, headers)
        headers |= {"X-Linked-Etag": f'"{hub.etag(name)}"', "X-Linked-Size": str(len(hub.files[name]))}
        target = hub.redirect_to or hub.storage_url
        headers["Location"] = f"{target}/storage/{urllib.parse.quote(name)}?signature=abc"
        return self.answer(302, headers)

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, name, headers=None):
        hub = self.hub
        wrong = hub.take(hub.faults.contents, name)
        content = hub.files[name] if wrong is None else wrong
        begin = 0
        byte_range = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if byte_range and not hub.faults.no_range:
            begin = int(byte_range[1])
            if begin >= len(content):
                return self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        for header, value in (headers or {}).items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(name, content[begin:])

    def send_body(self, name, body):
        faults = self.hub.faults
        cut = self.hub.take(faults.cuts, name)
        if cut is not None:
            self.wfile.write(body[:cut])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        if name in faults.hold:
            size, event = faults.hold[name]
            self.wfile.write(body[:size])
            self.wfile.flush()
            event.wait()
            body = body[size:]
        if faults.chunk is None:
            self.wfile.write(body)
            return
        size, pause = faults.chunk
        for at in range(0, len(body), size):
            self.wfile.write(body[at : at + size])
            self.wfile.flush()
            threading.Event().wait(pause)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # clients that go away are what some tests are about


@contextlib.contextmanager
def serving(hub):
    """Serves `hub`; sets its `url` and `storage_url`."""
    servers = []
    for role in ("hub", "storage"):
        handler = type("BoundHandler", (Handler,), {"hub": hub, "role": role})
        servers.append(Server(("127.0.0.1", 0), handler))
    hub.url, hub.storage_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
