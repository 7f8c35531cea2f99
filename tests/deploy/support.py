"""What the checks of deploy/ share."""

import os
import pathlib
import sys

SOURCE_DIR = pathlib.Path(os.environ.get("QUIRE_SOURCE_DIR") or pathlib.Path(__file__).parents[2])
DEPLOY = SOURCE_DIR / "deploy"
VENV = SOURCE_DIR / "build" / "venv"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

# --shutdown-timeout when nobody says otherwise: what supervisors have to wait for at least.
DEFAULT_SHUTDOWN_TIMEOUT_S = 30
# What the server may take after that to let go of what it ran, and some to spare.
LAST_WAIT_S = 10


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def use_test_packages():
    """Goes on in the interpreter that has the packages of tests/requirements."""
    python = VENV / "bin" / "python3"
    if pathlib.Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not (VENV / "made-of").exists():
        skip("build/venv is not there; scripts/python_env.sh makes it")
    os.execv(python, [str(python), "-B", *sys.argv])
