"""Identities of tokens."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from testbed.commands.declare import Role
from testbed.service.access import Identity
from testbed.storage.tokens import TokenStore


class Tokens(TokenStore):
    """The tokens in a database, as identities."""

    def identity(self, text: str, now: datetime | None = None) -> Identity:
        """Return the identity of a token. Raises `NotAuthenticated`; the error names no part of a secret."""
        token = self.authenticate(text, now)
        return Identity(token.name, cast("Role", token.role), frozenset(token.scopes), frozenset(token.labs))
