"""What the checks of deploy/ share."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from python_packages import SKIPPED, SOURCE_DIR, VENV, use_test_packages  # noqa: E402, F401: tests take them from here

DEPLOY = SOURCE_DIR / "deploy"

# --shutdown-timeout when nobody says otherwise: what supervisors have to wait for at least.
DEFAULT_SHUTDOWN_TIMEOUT_S = 30
# What the server may take after that to let go of what it ran, and some to spare.
LAST_WAIT_S = 10


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
