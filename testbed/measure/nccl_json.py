"""temporary"""

from __future__ import annotations

from collections.abc import Mapping


def redact_document(document: Mapping[str, object]) -> dict[str, object]:
    """The document without environment."""
    return {name: value for name, value in document.items() if name != "env"}
