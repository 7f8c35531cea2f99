"""What hostile clients send: strategies of Hypothesis, and the simplest of each first, to which failures shrink."""

import copy
import json
import operator

from hostile_client import Case, Conduct
from hypothesis import strategies as st

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PIPELINED_BYTES = 8 << 10  # of a request that is sent several times before an answer is read
LAST_TOKEN_ID = 8191
MOST_AT_ONCE = 24

SMALL = st.integers(0, 16)
TEXTS = st.one_of(
    st.sampled_from(["define apple", "a", "", " ", "\0", "\ud800", "\u202e", "<|im_start|>system\n", "<|im_end|>",
                     "<think>", "naïve 🍎", "a\u0300" * 50, "\U0001F468\u200D" * 20, "{{ 1 }}", "x" * 1025]),
    st.text(max_size=30))
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, -2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1e308, -1e308, 5e-324, 0.5]),
    st.integers(-200, 200), st.floats())
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=4),
                                                    st.dictionaries(st.text(max_size=8), inner, max_size=4)),
                    max_leaves=8)
BOOLEANS = st.booleans()


def optional(strategy):
    return st.one_of(st.none(), strategy)


# Fields as the API describes them. Outputs are short: it is requests that are to be many.
GENERATION = {
    "ignore_eos": BOOLEANS, "temperature": st.sampled_from([0, 1, 2]), "n": st.integers(1, 4),
    "top_p": st.floats(0.01, 1), "top_k": st.integers(-1, 50), "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 10), "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2), "seed": optional(st.integers(-2**63 + 1, 2**63 - 1)),
    "stop": st.one_of(st.text(min_size=1, max_size=5), st.lists(st.text(min_size=1, max_size=5), max_size=4)),
    "stop_token_ids": st.lists(st.integers(0, LAST_TOKEN_ID), max_size=4),
    "logit_bias": st.dictionaries(st.integers(0, LAST_TOKEN_ID).map(str), st.integers(-100, 100), max_size=4),
    "min_tokens": st.integers(0, 1), "prompt_logprobs": st.integers(0, 20), "echo": BOOLEANS, "user": TEXTS,
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": BOOLEANS, "continuous_usage_stats": BOOLEANS,
                                                          "resumable": BOOLEANS}),
    "priority": st.integers(-2, 2), "cache_salt": st.text(min_size=1, max_size=9), "timeout": st.floats(0.001, 100),
    "return_token_ids": BOOLEANS, "return_tokens_as_token_ids": BOOLEANS, "skip_special_tokens": BOOLEANS,
    "return_draft_usage": BOOLEANS, "include_stop_str_in_output": BOOLEANS, "request_id": st.text("ab", min_size=1, max_size=2),
    "model": st.sampled_from(["lexicon", "other"]),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}]),
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "other"]),
                           "content": st.one_of(TEXTS, st.lists(st.builds(
                               lambda text: {"type": "text", "text": text}, TEXTS), max_size=3))},
                          optional={"name": TEXTS, "reasoning_content": TEXTS, "tool_call_id": TEXTS}),
    min_size=1, max_size=4)
TOKEN_IDS = st.lists(st.integers(0, LAST_TOKEN_ID), min_size=1, max_size=40)
PROMPTS = st.one_of(TEXTS, TOKEN_IDS,
                    st.lists(TEXTS, min_size=1, max_size=4), st.lists(TOKEN_IDS, min_size=1, max_size=4))


@st.composite
def some_fields(draw, required, choices, most=4):
    """The required fields and a few of the others, which is cheaper than to ask about each."""
    body = {name: draw(strategy) for name, strategy in required.items()}
    for name in draw(st.lists(st.sampled_from(sorted(choices)), max_size=most, unique=True)):
        body[name] = draw(choices[name])
    return body


LENGTHS = {"max_tokens": st.integers(1, 24), "stream": BOOLEANS}
BODIES = {
    CHAT: some_fields(
        {"messages": MESSAGES, **LENGTHS},
        {**GENERATION, "logprobs": BOOLEANS, "top_logprobs": st.integers(0, 20), "tools": st.just([TOOL]),
         "tool_choice": st.sampled_from(["none", "auto", "required"]), "max_completion_tokens": st.integers(1, 24),
         "reasoning_effort": st.sampled_from(["none", "low"]), "continue_final_message": BOOLEANS,
         "add_generation_prompt": BOOLEANS,
         "chat_template_kwargs": st.dictionaries(st.text("abc"), LEAVES, max_size=2)}),
    COMPLETIONS: some_fields({"prompt": PROMPTS, **LENGTHS}, {**GENERATION, "logprobs": st.integers(0, 20)}),
    "/tokenize": st.one_of(
        some_fields({"prompt": TEXTS}, {"return_token_strs": BOOLEANS, "add_special_tokens": BOOLEANS}),
        some_fields({"messages": MESSAGES}, {"return_token_strs": BOOLEANS, "tools": st.just([TOOL])})),
    "/detokenize": some_fields({"tokens": TOKEN_IDS}, {"model": st.just("lexicon")}),
}


def names_within(node):
    """The keys of an object, the indices of a list."""
    return sorted(node) if isinstance(node, dict) else list(range(len(node)))


@st.composite
def mutated(draw, bodies):
    """A body, one or two of whose fields, or of what these hold, are something else, missing or new."""
    body = copy.deepcopy(draw(bodies))
    for _ in range(draw(st.integers(1, 2))):
        node = body
        name = draw(st.sampled_from(names_within(node)))
        while isinstance(node[name], (dict, list)) and node[name] and draw(BOOLEANS):
            node = node[name]
            name = draw(st.sampled_from(names_within(node)))
        kind = draw(st.sampled_from(["replaced", "removed", "added"]))
        if kind == "added" and isinstance(node, dict):
            node[draw(st.one_of(st.sampled_from(sorted(GENERATION)), st.text(max_size=9)))] = draw(JSON)
        elif kind == "removed" and len(node) > 1:
            del node[name]
        else:
            node[name] = draw(JSON)
    return body


@st.composite
def large(draw, path, largest):
    """A body that is large in one of its parts."""
    unit = draw(st.sampled_from(["a", " define apple", "é", "🍎", "<|im_start|>", "\0", "\n", "\\"]))
    text = unit * draw(st.sampled_from([100, 10_000, largest // len(json.dumps(unit))]))
    part = draw(st.sampled_from(["text", "prompts", "ids", "deep lists", "keys", "spaces", "number"]))
    if part == "text":
        message = [{"role": "user", "content": text}]
        body = {"messages": message} if path == CHAT else {"prompt": text, "return_token_strs": draw(BOOLEANS)}
    elif part == "prompts":
        body = {"prompt": [text[:1000]] * draw(st.sampled_from([2, 128, 129])), "max_tokens": 1}
    elif part == "ids":
        ids = [7] * draw(st.sampled_from([200, 5000, largest // 3]))
        body = {"tokens": ids} if path == "/detokenize" else {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 20}
    elif part == "keys":
        body = {f"k{i}": i for i in range(draw(st.sampled_from([1000, largest // 20])))}
    elif part == "deep lists":
        depth = draw(st.sampled_from([100, 10_000, largest // 2]))
        return b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}"
    elif part == "spaces":
        return b'{"prompt": "a", "max_tokens": 1' + b" " * (largest - 100) + b"}"
    else:
        return b'{"prompt": "a", "max_tokens": ' + b"9" * draw(st.sampled_from([30, 400, largest // 2])) + b"}"
    return json.dumps(body).encode()


@st.composite
def broken(draw, bodies):
    """The bytes of a body, some of which are missing, new or others."""
    data = json.dumps(draw(bodies)).encode()
    at = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from(["cut", "inserted", "overwritten", "twice", "no UTF-8"]))
    if kind == "cut":
        return data[:at]
    if kind == "twice":
        return data + data
    new = b"\xff\xc0\x80" if kind == "no UTF-8" else draw(st.binary(min_size=1, max_size=4))
    return data[:at] + new + data[at + (0 if kind == "inserted" else len(new)):]


def bodies(path, largest):
    valid = BODIES[path] if path in BODIES else st.one_of(*BODIES.values())
    as_json = st.one_of(valid, valid, mutated(valid), mutated(valid), JSON).map(lambda body: json.dumps(body).encode())
    return st.one_of(as_json, as_json, as_json, broken(valid), large(path, largest), st.binary(max_size=50))


TARGETS = st.one_of(
    st.sampled_from(["/", "/v1/models/lexicon", "/v1/models/none", "/v1/requests/ab", "/v1/completions/", "/nothing",
                     "/v1//completions", "/../../etc/passwd", "/%zz", "/%00", "/%2e%2e/", "*", "localhost:80",
                     "http://localhost/health", "/health?a=b&%", "/health#x", "", "//", "/" + "a" * 5000,
                     "/" + "a" * 40000]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(lambda text: "/" + text))
METHODS = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get", "X"])

JSON_TYPE = ("Content-Type", "application/json")
HEADERS = st.sampled_from([
    ("Connection", "close"), ("Connection", "keep-alive, upgrade"), ("Upgrade", "websocket"), ("Upgrade", "h2c"),
    ("Expect", "100-continue"), ("Expect", "a miracle"), ("Content-Encoding", "gzip"), ("Accept-Encoding", "br"),
    ("Content-Type", "text/plain"), ("Content-Type", "multipart/form-data; boundary=x"),
    ("Accept", "text/event-stream"), ("Origin", "https://evil.example"), ("Host", "evil.example"),
    ("Authorization", "Bearer " + "k" * 1000),
    ("Authorization", "Basic ="), ("X-Request-Id", "ab"), ("X-Request-Id", "\x7f'\""), ("X-Api-Key", ""),
    ("If-None-Match", "*"), ("Range", "bytes=0-1"), ("Last-Event-ID", "1"), ("TE", "trailers"), ("X", "y" * 20000),
    ("X", "y" * 40000), ("Content-Length", "5"), ("Transfer-Encoding", "chunked"), ("Cookie", "a=b; " * 1000)])
MISLEADING = {"Content-Length", "Transfer-Encoding"}  # say something else about where a request ends


def head(method, target, headers, version="HTTP/1.1"):
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace")


def chunked(draw, body):
    """The body in a few chunks."""
    at = draw(st.integers(0, len(body)))
    pieces = [piece for piece in (body[:at], body[at:]) if piece]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@st.composite
def http_requests(draw, endpoints, largest):
    """(method, bytes, whether they are one request as HTTP wants it)"""
    odd = draw(st.integers(0, 7)) == 7
    method, target = (draw(METHODS), draw(TARGETS)) if odd else draw(st.sampled_from(endpoints))
    headers = [("Host", "localhost"), JSON_TYPE]
    added = draw(st.lists(HEADERS, max_size=2, unique_by=lambda header: header[0]) if draw(SMALL) > 11 else st.just([]))
    headers = [header for header in headers if header[0] not in {name for name, _ in added}] + added
    whole = not MISLEADING & {name for name, _ in added}
    body = draw(bodies(target, largest)) if method == "POST" or draw(SMALL) > 14 else b""
    if method != "POST" and not body:
        return method, head(method, target, headers), whole
    if draw(SMALL) > 13:
        headers.append(("Transfer-Encoding", "chunked"))
        return method, head(method, target, headers) + chunked(draw, body), whole
    length = len(body)
    if draw(SMALL) > 14:
        length = draw(st.sampled_from([length + 1, max(0, length - 1), 0, -1, 2**31, 2**63, 2**64]))
    headers.append(("Content-Length", str(length)))
    return method, head(method, target, headers) + body, whole and length == len(body)


@st.composite
def no_http(draw):
    """Bytes that are no HTTP/1.1 request, or one with a mistake."""
    kind = draw(st.sampled_from(["bytes", "version", "no host", "chunks", "two lengths", "header lines", "TLS",
                                 "HTTP/2"]))
    host = [("Host", "localhost"), JSON_TYPE]
    if kind == "version":
        versions = st.sampled_from(["HTTP/1.0", "HTTP/0.9", "HTTP/9.9", "HTTP/1.1 x", ""])
        return head("GET", "/health", host, draw(versions))
    if kind == "no host":
        return head("GET", "/health", [])
    if kind == "chunks":
        chunks = draw(st.one_of(st.binary(max_size=30), st.sampled_from(
            [b"ffffffffffffffffff\r\n{}", b"2;x=y\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", b"-1\r\n", b"2\r\n{}0\r\n\r\n"])))
        return head("POST", "/tokenize", [*host, ("Transfer-Encoding", "chunked")]) + chunks
    if kind == "two lengths":
        lengths = draw(st.lists(st.sampled_from(["2", "3", "+2", "2, 2", "0x2", "chunked"]), min_size=2, max_size=2))
        names = ["Transfer-Encoding" if length == "chunked" else "Content-Length" for length in lengths]
        return head("POST", "/tokenize", [*host, *zip(names, lengths)]) + b"{}"
    if kind == "header lines":
        lines = st.sampled_from([b" folded", b"a b: c", b"X:\0", b": x", b"X" * 99])
        line = draw(st.one_of(st.binary(max_size=30), lines))
        return b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n"
    if kind == "TLS":
        return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw(st.binary(min_size=50, max_size=300))
    if kind == "HTTP/2":
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + draw(st.binary(max_size=50))
    return draw(st.binary(max_size=300))


@st.composite
def cases(draw, endpoints, largest):
    """`endpoints`: (method, path) of those that are documented. `largest`: about the most bytes of a body."""
    if draw(SMALL) > 14:
        method, data, whole = "GET", draw(no_http()), False
    else:
        method, data, whole = draw(http_requests(endpoints, largest))
    conduct = draw(st.one_of(st.just(Conduct.POLITE), st.sampled_from(Conduct)))
    if conduct == Conduct.PIPELINED and len(data) > PIPELINED_BYTES:
        conduct = Conduct.POLITE
    return Case(method, data, whole, conduct, draw(amounts(conduct, data)))


def amounts(conduct, data):
    if conduct in (Conduct.LEAVES_WHILE_SENDING, Conduct.RESETS_WHILE_SENDING):
        return st.integers(0, len(data))
    if conduct in (Conduct.LEAVES_WHILE_READING, Conduct.RESETS_WHILE_READING):
        return st.integers(0, 2000)
    return st.integers(2, 6)


def crowds(endpoints, largest):
    """Clients that come at once, as cases() has them; two lists, because Hypothesis makes most of them short."""
    case = cases(endpoints, largest)
    return st.builds(operator.add, st.lists(case, min_size=1, max_size=MOST_AT_ONCE // 2),
                     st.lists(case, max_size=MOST_AT_ONCE // 2))


def weighted_endpoints(openapi):
    """Those that the server documents; the ones that take bodies come up more often."""
    documented = [(method.upper(), path.replace("{model}", "lexicon").replace("{request_id}", "ab"))
                  for path, methods in openapi["paths"].items() for method in methods]
    return documented + [endpoint for endpoint in documented if endpoint[0] == "POST"] * 3
