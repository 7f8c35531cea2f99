"""Does to a server what a hostile case says, and checks that each answer is one that a client can read.

Every client ends by itself: what is incomplete is closed or half-closed, so nothing waits for the server's time-outs.
"""

import concurrent.futures
import contextlib
import dataclasses
import enum
import json
import re
import socket
import struct
import threading
import time

ANSWER_S = 120  # far more than any answer takes
PAUSE_S = 0.002  # of slow clients: several times what the server takes to come round to them
SMALL_BUFFER = 4096
MAX_SLOW_READS = 30
KEPT_OPEN = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
SENTENCE = re.compile(r"\S+( \S+){2,}", re.DOTALL | re.ASCII)  # it may quote a value of other white space
# A refusal may be lost where it comes before the whole request was sent: closing then resets the connection.
MAX_BYTES_SENT_AT_ONCE = 64 << 10


class Conduct(enum.Enum):
    POLITE = "sends the request and reads the answer"
    KEPT_CONNECTION = "asks for /version first, on the same connection"
    PIPELINED = "sends the request several times before it reads"
    SLOW_SENDER = "sends piece by piece"
    SLOW_READER = "reads little by little through a small buffer"
    HALF_CLOSES = "closes its sending side before it reads"
    LEAVES_WHILE_SENDING = "closes in the middle of the request"
    LEAVES_WHILE_READING = "closes in the middle of the answer"
    RESETS_WHILE_SENDING = "resets the connection in the middle of the request"
    RESETS_WHILE_READING = "resets the connection in the middle of the answer"
    NEVER_READS = "sends the request and never reads, as long as the others are at it"


READ_TO_THE_END = {Conduct.POLITE, Conduct.KEPT_CONNECTION, Conduct.PIPELINED, Conduct.SLOW_SENDER, Conduct.SLOW_READER}


@dataclasses.dataclass(frozen=True)
class Case:
    method: str
    data: bytes  # all that is sent
    whole: bool  # data is one request as HTTP wants it
    conduct: Conduct
    amount: int  # pieces, repetitions, or bytes after which the client leaves

    @property
    def waits_for_others(self):
        return self.conduct == Conduct.NEVER_READS

    @property
    def may_be_taken_over(self):
        """Whether another client may go on with its stream, which ends it here."""
        return b"resumable" in self.data or b"/events" in self.data

    def __repr__(self):
        data = repr(self.data) if len(self.data) <= 2000 else f"{self.data[:1000]!r}...{self.data[-200:]!r}"
        return f"Case({self.conduct.name}, amount={self.amount}, whole={self.whole}, {len(self.data)} bytes: {data})"

    def _repr_pretty_(self, printer, cycle):  # as Hypothesis prints it
        printer.text(repr(self))


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    body: bytes


class Closed(Exception):
    """The server closed the connection where there was more to read; `midway`: in the middle of an answer."""

    def __init__(self, midway):
        super().__init__("the server closed the connection")
        self.midway = midway


class AnswerReader:
    """Answers out of a socket, one after the other. AssertionError: what comes is no HTTP/1.1."""

    def __init__(self, connection, piece=65536, pauses=0):
        self.connection = connection
        self.piece = piece
        self.pauses = pauses
        self.received = b""

    def read(self, method):
        """The next answer that is no interim one."""
        while True:
            head = self.until(b"\r\n\r\n", at_start=True).decode("latin-1").split("\r\n")
            match = re.fullmatch(r"HTTP/1\.1 ([1-5]\d\d) [\w ()'-]+", head[0])
            assert match, f"a status line expected: {head[0]!r}"
            lines = [line.partition(": ") for line in head[1:]]
            assert all(name and colon for name, colon, _ in lines), f"a header without a name: {head}"
            headers = {name.lower(): value for name, _, value in lines}
            assert len(headers) == len(lines), f"a header is given twice: {head}"
            status = int(match[1])
            if status >= 200:
                return Answer(status, headers, self.body(method, status, headers))

    def body(self, method, status, headers):
        if method == "HEAD" or status in (204, 304):
            return b""
        if headers.get("transfer-encoding") == "chunked":
            body = []
            while size := int(self.until(b"\r\n"), 16):
                body.append(self.exactly(size))
                assert self.exactly(2) == b"\r\n", "a chunk is longer than it says"
            assert self.exactly(2) == b"\r\n", "a trailer that nothing announced"
            return b"".join(body)
        return self.exactly(int(headers["content-length"]))

    def until(self, end, at_start=False):
        while end not in self.received:
            self.more(at_start and not self.received)
        line, _, self.received = self.received.partition(end)
        return line

    def exactly(self, count):
        pieces = [self.received]
        missing = count - len(self.received)
        while missing > 0:
            self.received = b""
            self.more()
            pieces.append(self.received)
            missing -= len(self.received)
        whole = b"".join(pieces)
        self.received = whole[count:]
        return whole[:count]

    def more(self, between_answers=False):
        if self.pauses > 0:
            self.pauses -= 1
            time.sleep(PAUSE_S)
        try:
            data = self.connection.recv(self.piece)
        except ConnectionError as error:
            raise Closed(not between_answers) from error
        if not data:
            raise Closed(not between_answers)
        self.received += data


def check_answer(answer):
    """That it is one a client can read, and no failure of the server."""
    kind = answer.headers.get("content-type", "")
    assert answer.status < 500, (answer.status, answer.body[:2000])
    if not answer.body:
        assert answer.status < 400 or answer.headers.get("content-length") != "0", answer
    elif answer.status >= 400:
        assert kind == "application/json", (answer.status, kind)
        check_error(json.loads(answer.body))
    elif kind == "application/json":
        json.loads(answer.body)
    elif kind.startswith("text/event-stream"):
        check_events(answer.body)


def check_error(body):
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert SENTENCE.fullmatch(error["message"]) and error["message"].endswith("."), f"a sentence expected: {error}"
    assert error["type"], error


def check_events(body):
    events = body.decode().split("\n\n")
    assert events.pop() == "", "the last event has no end"
    data = [dict(line.split(": ", 1) for line in event.split("\n"))["data"] for event in events]
    assert data.pop() == "[DONE]", f"[DONE] does not come last: {events[-1:]}"
    for each in data:
        assert "error" not in json.loads(each), f"the stream failed: {each}"


class HostileClient:
    """Runs cases against a server from several threads. `statuses` counts the answers that were read."""

    def __init__(self, server):
        self.server = server
        self.statuses = {}
        self.lock = threading.Lock()

    def run_all(self, crowd):
        """All at once; raises the first failure among them."""
        others_are_done = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(len(crowd)) as pool:
            futures = [pool.submit(self.run, case, others_are_done) for case in crowd]
            concurrent.futures.wait([future for future, case in zip(futures, crowd) if not case.waits_for_others])
            others_are_done.set()
            for future, case in zip(futures, crowd):
                try:
                    future.result()
                except Exception as error:
                    raise AssertionError(f"{case}: {error!r}; the log: {self.server.log[-2000:]}") from error

    def run(self, case, others_are_done):
        """`others_are_done`: the event until which clients that never read stay."""
        with contextlib.closing(socket.socket()) as connection:
            connection.settimeout(ANSWER_S)
            if case.conduct in (Conduct.SLOW_READER, Conduct.NEVER_READS):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            connection.connect((self.server.host, self.server.port))
            self.send(connection, case)
            self.receive(connection, case, others_are_done)

    def send(self, connection, case):
        match case.conduct:
            case Conduct.KEPT_CONNECTION:
                pieces = [KEPT_OPEN, case.data]
            case Conduct.PIPELINED:
                pieces = [case.data * case.amount]
            case Conduct.SLOW_SENDER:
                step = max(1, -(-len(case.data) // case.amount))
                pieces = [case.data[at:at + step] for at in range(0, len(case.data), step)]
            case Conduct.LEAVES_WHILE_SENDING | Conduct.RESETS_WHILE_SENDING:
                pieces = [case.data[:case.amount]]
            case _:
                pieces = [case.data]
        # The server may refuse early and close; the answer is then there to be read, or was lost.
        with contextlib.suppress(ConnectionError):
            for index, piece in enumerate(pieces):
                if index > 0:
                    time.sleep(PAUSE_S)
                connection.sendall(piece)

    def receive(self, connection, case, others_are_done):
        match case.conduct:
            case Conduct.LEAVES_WHILE_SENDING:
                return
            case Conduct.RESETS_WHILE_SENDING:
                reset_at_close(connection)
            case Conduct.LEAVES_WHILE_READING | Conduct.RESETS_WHILE_READING:
                self.end_of_request(connection, case)
                with contextlib.suppress(ConnectionError):
                    if case.amount:
                        connection.recv(case.amount)
                if case.conduct == Conduct.RESETS_WHILE_READING:
                    reset_at_close(connection)
            case Conduct.NEVER_READS:
                others_are_done.wait(ANSWER_S)
                reset_at_close(connection)
            case _:
                self.end_of_request(connection, case)
                self.read_answers(connection, case)

    def end_of_request(self, connection, case):
        if not case.whole or case.conduct == Conduct.HALF_CLOSES:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def read_answers(self, connection, case):
        slow = case.conduct == Conduct.SLOW_READER
        reader = AnswerReader(connection, **({"piece": 256, "pauses": MAX_SLOW_READS} if slow else {}))
        methods = [case.method] * (case.amount if case.conduct == Conduct.PIPELINED else 1)
        if case.conduct == Conduct.KEPT_CONNECTION:
            methods.insert(0, "GET")
        answered = 0
        try:
            for method in methods:
                answer = reader.read(method)
                self.check(answer)
                answered += 1
                if answer.headers.get("connection") == "close":
                    break
        except Closed as closed:
            must_answer = (case.whole and case.conduct in READ_TO_THE_END and len(case.data) <= MAX_BYTES_SENT_AT_ONCE
                           and (closed.midway or answered == 0) and not case.may_be_taken_over)
            assert not must_answer, "the server closed the connection without a whole answer"

    def check(self, answer):
        check_answer(answer)
        with self.lock:
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1


def reset_at_close(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
