"""Errors that keep a load from being made."""

from __future__ import annotations

from lightning.errors import LightningError


class LoadError(LightningError, code="load"):
    """A load that cannot be made: a wrong address, a server that does not answer, data that its model does not take."""
