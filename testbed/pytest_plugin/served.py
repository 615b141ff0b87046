"""The lab of a service, for one test: leased through its client, and put back as it was."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def check_client(url: str) -> None:
    """Raise `pytest.UsageError` unless this release has the client of a service."""
    if find_spec("testbed.client") is None:
        raise pytest.UsageError(
            f"--lab-server {url}: this release of lightbed has no client of a service; name a lab file by --lab"
        )
