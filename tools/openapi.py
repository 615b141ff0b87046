"""Write `docs/reference/openapi.json`: `python -m tools.openapi`. A change needs a new version of the interface."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "reference" / "openapi.json"


def write(path: Path, text: str) -> None:
    """Write the document. Exits where the one that is kept differs and has the same version."""
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept and kept != text and _version(kept) == _version(text):
        sys.exit(
            f"the interface has changed: raise API_VERSION, which is {_version(text)}, then write it again"
        )
    path.write_text(text, encoding="utf-8")


def _version(text: str) -> str:
    return str(json.loads(text)["info"]["version"])


def main() -> None:
    """Write what the service of this checkout describes."""
    from testbed.service.application import document_text
    from testbed.service.server import make_service

    with tempfile.TemporaryDirectory() as runs:
        write(KEPT, document_text(make_service([ROOT / "labs" / "testbed12.yaml"], Path(runs))))


if __name__ == "__main__":
    main()
