"""JSON Schemas made up at random, and whether what a model answers under them follows them.

A case is a number: its schema, its request and the model's answer are the same in every run.
"""

import collections
import concurrent.futures
import json
import random
import re

import jsonschema

WORDS = ["a", "b", "id", "name", "kind", "x-1", "\u00e9", "na me", "q\"uote", "back\\slash", "$ref", "", "word", "tags",
         "\u65e5\u672c", "new\nline", "A"]
# Patterns that ECMAScript and Python read alike.
PATTERNS = ["^[a-z]+$", "^[a-c]{2,5}$", "^a", "b$", "^(ab|cd)*e?$", "^[0-9]{3}-[0-9]{4}$", "^.{2,6}$", "^[A-Z][a-z]{1,5}$",
            "[0-9]", "^x_", "^$|^[ab]$", "cat|dog", "^[^\"\\\\]*$", "^\\w+ \\w+$", "^(\u00e9|ab|\\n)*c$", "^-?[0-9]{1,40}$"]
FORMATS = ["date", "ipv4", "uuid", "email", "ipv6"]
NUMBERS = [0, 1, 2, 3, 5, 7, 10, 12, 100, 255, 1000, 65535, 10**9, 2**53, -1, -3, -10, -1000, 0.5, 1.25, -0.25, 99.75, 10**20,
           10**50, 10**99]


class Maker:
    """One random schema. References may lead anywhere, so that some schemas are refused: they have no value."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.definitions = self.random.sample(["t", "node", "item"], self.random.choice([0, 0, 0, 1, 2]))

    def chance(self, of):
        return self.random.random() < of

    def whole(self):
        schema = self.schema(0)
        if isinstance(schema, dict) and self.definitions:
            schema["$defs"] = {name: self.schema(1) for name in self.definitions}
        return schema

    def schema(self, depth):
        if self.chance(0.03):
            return self.chance(0.8)
        makers = [self.scalar, self.scalar, self.string, self.string, self.number, self.number, self.values]
        if depth < 4:
            makers += [self.object, self.object, self.object, self.object, self.array, self.array, self.array]
            makers += [self.combined, self.combined] * (depth > 0) + [self.combined]
        if self.definitions and depth > 0:
            makers += [self.reference] * 3
        made = self.random.choice(makers)(depth)
        if depth < 3 and self.chance(0.06):
            made = {"allOf": [made, self.schema(depth + 2)]}
        return made

    def reference(self, _):
        return {"$ref": "#/$defs/" + self.random.choice(self.definitions)}

    def scalar(self, _):
        kinds = self.random.sample(["null", "boolean", "integer", "number", "string"], self.random.randint(1, 2))
        return {"type": kinds if len(kinds) > 1 else kinds[0]}

    def value(self, depth):
        kind = self.random.randrange(8)
        if kind == 0 and depth < 2:
            return [self.value(depth + 1) for _ in range(self.random.randrange(3))]
        if kind == 1 and depth < 2:
            return {name: self.value(depth + 1) for name in self.random.sample(WORDS, self.random.randrange(3))}
        if kind < 4:
            return self.random.choice(WORDS)
        if kind < 6:
            return self.random.choice(NUMBERS)
        return self.random.choice([True, False, None])

    def values(self, _):
        if self.chance(0.3):
            return {"const": self.value(0)}
        values = [self.value(0) for _ in range(self.random.randint(1, 6))]
        distinct = {json.dumps(value, sort_keys=True): value for value in values}
        return {"enum": list(distinct.values())}

    def bounds(self, schema, least, most, highest, at_least=0.4):
        """Sets either, both or none of two limits."""
        low = self.random.randrange(highest)
        if self.chance(at_least):
            schema[least] = low
        if self.chance(0.5):
            schema[most] = low + self.random.randrange(highest)

    def string(self, _):
        schema = {"type": "string"}
        kind = self.random.randrange(6)
        if kind in (1, 2):
            schema["pattern"] = self.random.choice(PATTERNS)
        if kind == 3:
            schema["format"] = self.random.choice(FORMATS)
        if kind != 3 and self.chance(0.6):
            self.bounds(schema, "minLength", "maxLength", self.random.choice([4, 12, 60]))
        return schema

    def number(self, _):
        schema = {"type": self.random.choice(["integer", "number"])}
        low, high = sorted(self.random.sample(NUMBERS, 2))
        if self.chance(0.6):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        if self.chance(0.25):
            schema["multipleOf"] = self.random.choice([2, 3, 5, 10, 0.5, 0.25])
        return schema

    def array(self, depth):
        schema = {"type": "array"} if self.chance(0.9) else {}
        if self.chance(0.8):
            schema["items"] = self.schema(depth + 1)
        if self.chance(0.25):
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]
        if self.chance(0.5):
            self.bounds(schema, "minItems", "maxItems", 4)
        if self.chance(0.2):
            schema["uniqueItems"] = True
        elif self.chance(0.2):
            schema["contains"] = self.schema(depth + 2)
            if self.chance(0.5):
                schema["minContains"] = self.random.randint(0, 2)
            if self.chance(0.3):
                schema["maxContains"] = self.random.randint(2, 3)
        return schema

    def object(self, depth):
        schema = {"type": "object"} if self.chance(0.9) else {}
        names = self.random.sample(WORDS, self.random.randrange(5))
        if names:
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
        if self.chance(0.6):
            required = [name for name in names if self.chance(0.6)]
            required += self.random.sample(WORDS, 1) if self.chance(0.15) else []
            schema["required"] = sorted(set(required))
        if self.chance(0.45):
            schema["additionalProperties"] = False if self.chance(0.7) else self.schema(depth + 2)
        if self.chance(0.2):
            patterns = self.random.sample(PATTERNS, self.random.randint(1, 2))
            schema["patternProperties"] = {pattern: self.schema(depth + 2) for pattern in patterns}
        if self.chance(0.12):
            names_of = [self.string, self.values]
            schema["propertyNames"] = self.random.choice(names_of)(depth)
        if self.chance(0.15):
            self.bounds(schema, "minProperties", "maxProperties", 4)
        if len(names) > 1 and self.chance(0.12):
            first, *others = self.random.sample(names, 2)
            schema["dependentRequired"] = {first: others}
        if names and self.chance(0.08):
            schema["dependentSchemas"] = {names[0]: self.object(depth + 3)}
        return schema

    def combined(self, depth):
        kind = self.random.choice(["anyOf", "anyOf", "oneOf", "allOf", "not", "if"])
        if kind == "not":
            return {**self.scalar_or_object(depth), "not": self.schema(depth + 2)}
        if kind == "if":
            made = {"if": self.schema(depth + 2), "then": self.schema(depth + 1), "else": self.schema(depth + 1)}
            return {name: part for name, part in made.items() if name == "if" or self.chance(0.8)}
        return {kind: [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]}

    def scalar_or_object(self, depth):
        return self.random.choice([self.scalar, self.object, lambda _: {}])(depth)


def make_schema(number):
    return Maker(number).whole()


def judged(schema):
    """The schema with patterns as Python has them: its $ also matches before a line break at the end."""
    if isinstance(schema, list):
        return [judged(part) for part in schema]
    if not isinstance(schema, dict):
        return schema

    def pattern(text):
        return re.sub(r"\$$|\$(?=\|)", r"\\Z", text).replace(r"\w", "[a-zA-Z0-9_]")

    made = {}
    for name, part in schema.items():
        if name in ("const", "enum"):
            made[name] = part
        elif name in ("properties", "$defs", "dependentSchemas"):
            made[name] = {key: judged(value) for key, value in part.items()}
        elif name == "patternProperties":
            made[name] = {pattern(key): judged(value) for key, value in part.items()}
        else:
            made[name] = pattern(part) if name == "pattern" else judged(part)
    return made


def without_repeats(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def fault(schema, text):
    """What is wrong with an answer; None: it follows the schema."""
    try:
        value = json.loads(text, object_pairs_hook=without_repeats, parse_constant=no_constant)
        judge = jsonschema.Draft202012Validator(judged(schema), format_checker=jsonschema.FormatChecker())
        judge.validate(value)
    except jsonschema.ValidationError as error:
        return f"does not follow it: {error.message[:200]}"
    except ValueError as error:
        return f"does not parse: {error}"
    return None


def make_request(number):
    chance = random.Random(f"request {number}")
    return {"prompt": chance.choice(["define apple", "{", "JSON: ", "what does candid mean?", "[1, 2, {\"a\": "]),
            "max_tokens": int(2 ** chance.uniform(1, 8)), "temperature": round(chance.uniform(0, 2), 2), "seed": number,
            "structured_outputs": {"json": json.dumps(make_schema(number))}}


class Findings:
    """Counts of what became of the cases, and the faults: [(number, sentence)]."""

    def __init__(self):
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.faults = []

    def add(self, number, status, answer):
        if status == 400 and " cannot be enforced: " in answer["error"]["message"]:
            self.counts["refused"] += 1
            reason = answer["error"]["message"].split(" cannot be enforced: ")[1]
            self.refusals[re.sub(r"^#\S*: |[0-9]+|\"[^\"]*\"", "", reason)[:70]] += 1
            return
        if status != 200:
            self.faults.append((number, f"{status}: {json.dumps(answer)[:300]}"))
            return
        choice = answer["choices"][0]
        self.counts["answers"] += 1
        self.counts["steered to an end"] += bool(choice.get("steered_to_end"))
        self.counts["tokens"] += answer["usage"]["completion_tokens"]
        wrong = fault(make_schema(number), choice["text"])
        if wrong:
            self.faults.append((number, f"{wrong}: {choice['text'][:300]!r}"))


def ask(server, number):
    """(status, answer) of a case. A limit below the shortest answer becomes that answer's length."""
    body = make_request(number)
    status, _, answer = server.post("/v1/completions", body, timeout=300)
    if status == 400:
        least = re.match(r"An answer takes at least (\d+) tokens", answer["error"]["message"])
        if least:
            status, _, answer = server.post("/v1/completions", {**body, "max_tokens": int(least[1])}, timeout=300)
    return status, answer


def try_schemas(server, numbers, at_once=8, report=None):
    """Findings of the cases; `report` is called with how many are done."""
    findings = Findings()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for done, (number, (status, answer)) in enumerate(
                zip(numbers, pool.map(lambda number: ask(server, number), numbers)), 1):
            findings.add(number, status, answer)
            if report:
                report(done)
    return findings
