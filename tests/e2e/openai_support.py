"""OpenAI's Python client on `quire serve`, synchronous and asynchronous, for one and the same tests."""

import asyncio
import inspect
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from python_packages import use_test_packages  # noqa: E402

use_test_packages()

import openai  # noqa: E402

from server_support import serving  # noqa: E402
from support import CliTest  # noqa: E402

KEY = "the-key-of-the-tests"


class Blocking:
    """Something of the asynchronous client, used like its synchronous counterpart."""

    def __init__(self, value, run):
        self._value = value
        self._run = run

    def _blocking(self, value):
        if inspect.isawaitable(value):
            value = self._run(value)
        if callable(value) or type(value).__name__.startswith("Async"):
            return Blocking(value, self._run)
        return value

    def __getattr__(self, name):
        return self._blocking(getattr(self._value, name))

    def __call__(self, *arguments, **options):
        return self._blocking(self._value(*arguments, **options))

    def __iter__(self):
        iterator = aiter(self._value)
        while True:
            try:
                yield self._run(anext(iterator))
            except StopAsyncIteration:
                return

    def __enter__(self):
        return self._blocking(self._value.__aenter__())

    def __exit__(self, *error):
        return self._run(self._value.__aexit__(*error))


class ClientTest(CliTest):
    """One server for the tests of a class, which the subclass gives its arguments."""

    ARGUMENTS = ()

    @classmethod
    def model(cls):
        """The model to serve, as a context."""
        return None

    @classmethod
    def setUpClass(cls):
        model = cls.model()
        arguments = cls.ARGUMENTS if model is None else (cls.enterClassContext(model), *cls.ARGUMENTS)
        cls.server = cls.enterClassContext(serving("--api-key", KEY, *arguments))
        cls.server.headers["Authorization"] = f"Bearer {KEY}"

    def options(self, **options):
        return {"base_url": self.server.address + "/v1", "api_key": KEY, "max_retries": 0, "timeout": 120, **options}

    def sync_client(self, **options):
        client = openai.OpenAI(**self.options(**options))
        self.addCleanup(client.close)
        return client

    def async_client(self, **options):
        """The client and what runs its coroutines."""
        runner = asyncio.Runner()
        self.addCleanup(runner.close)
        client = openai.AsyncOpenAI(**self.options(**options))
        self.addCleanup(lambda: runner.run(client.close()))

        async def awaited(value):
            return await value

        return Blocking(client, lambda value: runner.run(awaited(value)))

    def post(self, path, body):
        """An endpoint that is not OpenAI's."""
        status, _, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer


def synchronous(tests):
    """The tests of `tests` with the synchronous client."""
    return type(f"Sync{tests.__name__}", (tests, ClientTest), {"client": ClientTest.sync_client})


def asynchronous(tests):
    return type(f"Async{tests.__name__}", (tests, ClientTest), {"client": ClientTest.async_client})


def user(text):
    return [{"role": "user", "content": text}]
