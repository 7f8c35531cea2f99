"""The interpreter with the Python packages of tests/requirements, for the tests that need them."""

import os
import pathlib
import subprocess
import sys

SOURCE_DIR = pathlib.Path(os.environ.get("QUIRE_SOURCE_DIR") or pathlib.Path(__file__).parents[1])
VENV = SOURCE_DIR / "build" / "venv"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def use_test_packages():
    """Goes on in the interpreter that has the packages; skips the test where they cannot be had."""
    if pathlib.Path(sys.prefix).resolve() == VENV.resolve():
        return
    code = subprocess.run([SOURCE_DIR / "scripts" / "python_env.sh"], check=False).returncode
    if code != 0:
        sys.exit(code)
    python = VENV / "bin" / "python3"
    os.execv(python, [str(python), "-B", *sys.argv])
