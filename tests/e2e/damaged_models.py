"""Checkpoints with a fault, for the end-to-end tests."""

import json
import struct

from support import LEXICON

WEIGHTS = (LEXICON / "model.safetensors").read_bytes()
NAN, INFINITY, ZERO, HUGE = b"\xc0\x7f", b"\x80\x7f", b"\x00\x00", b"\x80\x4a"  # in bfloat16, the last 4,194,304


def _parts(weights):
    length = struct.unpack("<Q", weights[:8])[0]
    return json.loads(weights[8:8 + length]), weights[8 + length:]


def _joined(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def with_values(name, value, count=None):
    """The bundled model's weights with the first `count` values of a tensor (all of them) replaced."""
    header, data = _parts(WEIGHTS)
    begin, end = header[name]["data_offsets"]
    count = (end - begin) // 2 if count is None else count
    return _joined(header, data[:begin] + value * count + data[begin + 2 * count:])


def with_header(change):
    """The same with a header that `change` has changed in place."""
    header, data = _parts(WEIGHTS)
    change(header)
    return _joined(header, data)


def without_tensor(name):
    """The same without one tensor."""
    header, data = _parts(WEIGHTS)
    begin, end = header.pop(name)["data_offsets"]
    for other, entry in header.items():
        if other != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    return _joined(header, data[:begin] + data[end:])


def without_logits():
    """Weights with which every logit is NaN."""
    return with_values("model.norm.weight", NAN)
