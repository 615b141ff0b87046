"""Writer of `docs/reference/openapi.json`: `python -m tools.openapi`. A change requires a new interface version."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"


def write(path: Path, text: str) -> None:
    """Write the document. Exits with a message if the stored document differs but has the same version."""
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if stored and stored != text and _version(stored) == _version(text):
        sys.exit(
            f"the interface has changed: increase API_VERSION (now {_version(text)}), then run this command again"
        )
    path.write_text(text, encoding="utf-8")


def _version(text: str) -> str:
    return str(json.loads(text)["info"]["version"])


def main() -> None:
    """Write the OpenAPI document of the service in this checkout."""
    from testbed.service.application import render_interface
    from testbed.service.server import make_service

    with tempfile.TemporaryDirectory() as runs:
        write(DOCUMENT, render_interface(make_service([ROOT / "labs" / "testbed12.yaml"], Path(runs))))


if __name__ == "__main__":
    main()
