"""A server of OpenAI's API that behaves, or misbehaves, as a test wants."""

import asyncio
import contextlib
import dataclasses
import json
import threading
import time


@dataclasses.dataclass
class Call:
    """A request as it came in."""

    number: int  # in order of arrival, per path
    method: str
    path: str
    headers: dict
    body: dict | None
    time_s: float
    running: int  # streams at that moment, this one among them


class Reply:
    """Writes an answer."""

    def __init__(self, writer):
        self.writer = writer

    async def head(self, status, content_type, headers=()):
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", *headers]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def whole(self, status, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(status, "application/json", [f"Content-Length: {len(data)}", *headers])
        self.writer.write(data)
        await self.writer.drain()

    async def error(self, status, message, headers=()):
        await self.whole(status, {"error": {"message": message, "type": "x", "code": status}}, headers)

    async def start_stream(self, content_type="text/event-stream"):
        await self.head(200, content_type, ["Transfer-Encoding: chunked"])

    async def chunk(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end_stream(self):
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def cut(self):
        self.writer.close()


def event(**fields):
    return f"data: {json.dumps(fields)}\n\n"


def text_event(text, path="/v1/completions"):
    choice = {"text": text} if path == "/v1/completions" else {"delta": {"content": text}}
    return event(choices=[{"index": 0, **choice, "finish_reason": None}], usage=None)


def usage_event(prompt_tokens, completion_tokens):
    return event(choices=[], usage={"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens})


def num_prompt_tokens(body):
    prompt = body.get("prompt") or body["messages"][-1]["content"]
    return len(prompt) if isinstance(prompt, list) else len(prompt.split())


async def answer(call, reply, delay_s=0.0, usage=True):
    """What a good server sends: max_tokens words, one an event."""
    count = call.body.get("max_tokens", 16)
    await reply.start_stream()
    if call.path.endswith("chat/completions"):
        await reply.chunk(event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]))
    for index in range(count):
        if delay_s:
            await asyncio.sleep(delay_s)
        await reply.chunk(text_event(f"w{index} ", call.path))
    await reply.chunk(event(choices=[{"index": 0, "text": "", "delta": {}, "finish_reason": "length"}]))
    if usage and call.body.get("stream_options", {}).get("include_usage"):
        await reply.chunk(usage_event(num_prompt_tokens(call.body), count))
    await reply.chunk("data: [DONE]\n\n")
    await reply.end_stream()


class MockServer:
    """Serves on a port of its own while its context lasts.

    `handler(call, reply)` answers streamed requests; /v1/models and the requests for one token that look
    whether token ids are taken are answered here.
    """

    def __init__(self, handler=answer, takes_token_ids=True, models=({"id": "mock"},)):
        self.handler = handler
        self.takes_token_ids = takes_token_ids
        self.models = list(models)
        self.calls = []  # streamed requests
        self.other_calls = []
        self.connections = 0
        self.running = 0
        self.peak = 0

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        server.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                await self._serve_one(reader, Reply(writer))
        writer.close()

    async def _serve_one(self, reader, reply):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in head[1:] if line)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(data) if data else None
        streams = bool(body and body.get("stream"))
        calls = self.calls if streams else self.other_calls
        call = Call(len(calls), method, path, headers, body, time.monotonic(), self.running + 1)
        calls.append(call)
        if path == "/v1/models":
            await reply.whole(200, {"object": "list", "data": self.models})
        elif not streams:
            if isinstance(body["prompt"], list) and not self.takes_token_ids:
                await reply.error(400, "prompt must be a string")
            else:
                await reply.whole(200, {"choices": [{"text": "x"}]})
        else:
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                await self.handler(call, reply)
            finally:
                self.running -= 1
