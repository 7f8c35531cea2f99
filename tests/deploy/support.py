"""What the checks of deploy/ share."""

import os
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


def skip_without_root_and_build(root_reason, build_reason, sanitizer_reason):
    if os.geteuid() != 0:
        skip(root_reason)
    if "QUIRE_BUILD_DIR" not in os.environ:
        skip(build_reason)
    if os.environ.get("QUIRE_SANITIZE"):
        skip(sanitizer_reason)
