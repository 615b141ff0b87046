"""Bearer tokens: random, stored as hashes, limited by role, scopes, labs and time.

A secret has 256 random bits, so a fast hash cannot be reversed by search; a slow hash would only delay every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from testbed.service_errors import InvalidRequest, NotAuthenticated, NotFound
from testbed.storage.audit import AuditEntry, LocalUser, append_entry
from testbed.storage.database import Database
from testbed.storage.owner import get_current_person
from testbed.storage.schema import tokens

NAME_PREFIX = "lightbed"
SCOPES = ("labs:read", "runs:read", "runs:write", "leases:write", "labs:write", "labs:stop", "audit:read")
"""Scopes to which a token can be limited; a token without scopes is limited only by its role."""
_TOKEN_PATTERN = re.compile(rf"{NAME_PREFIX}_([0-9a-f]{{12}})_([0-9a-f]{{64}})")


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are in UTC; `revoked` is empty until the token is revoked."""

    id: str
    name: str
    role: str
    scopes: tuple[str, ...]
    labs: tuple[str, ...]
    created: str
    expires: str
    revoked: str

    def json(self) -> dict[str, Any]:
        """Return the token for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


class TokenStore:
    """The tokens in a database. Methods raise `StorageError` and the errors of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        role: str,
        *,
        lifetime: timedelta,
        scopes: Collection[str] = (),
        labs: Collection[str] = (),
        now: datetime | None = None,
    ) -> tuple[Token, str]:
        """Create a token and return it with its text, which is not stored. Raises `InvalidRequest`."""
        if not name.isprintable():
            raise InvalidRequest(f"{name!r} is not a valid name: it has characters that cannot be printed")
        unknown_scopes = sorted(set(scopes) - set(SCOPES))
        if unknown_scopes:
            raise InvalidRequest(f"{unknown_scopes[0]!r} is not a scope; scopes are {', '.join(SCOPES)}")
        token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
        created_at = now or datetime.now(UTC)
        row = {
            "id": token_id,
            "hash": _hash(secret),
            "name": name,
            "role": role,
            "scopes": ",".join(sorted(scopes)),
            "labs": ",".join(sorted(labs)),
            "created": created_at.isoformat(timespec="seconds"),
            "expires": (created_at + lifetime).isoformat(timespec="seconds"),
            "revoked": "",
        }
        with self._database.open_transaction() as connection:
            connection.execute(tokens.insert().values(row))
            append_entry(connection, _make_audit_entry("create token", _decode_token(row)))
        return _decode_token(row), f"{NAME_PREFIX}_{token_id}_{secret}"

    def list_tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""
        with self._database.open_reading() as connection:
            rows = connection.execute(sa.select(tokens).order_by(tokens.c.created, tokens.c.id)).mappings()
            return tuple(_decode_token(dict(row)) for row in rows)

    def revoke(self, token_id: str) -> Token:
        """Revoke a token. Raises `NotFound`."""
        revoked_at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._database.open_transaction() as connection:
            change = tokens.update().where(tokens.c.id == token_id, tokens.c.revoked == "")
            is_new = connection.execute(change.values(revoked=revoked_at)).rowcount
            row = connection.execute(sa.select(tokens).where(tokens.c.id == token_id)).mappings().first()
            if row is not None and is_new:
                append_entry(connection, _make_audit_entry("revoke token", _decode_token(dict(row))))
        if row is None:
            raise NotFound(f"there is no token {token_id!r}; see `testbed token list`")
        return _decode_token(dict(row))

    def authenticate(self, text: str, now: datetime | None = None) -> Token:
        """Return the token of a text. Raises `NotAuthenticated`; the error names no part of a secret."""
        match = _TOKEN_PATTERN.fullmatch(text)
        row = self._find_row(match[1]) if match else None
        if match is None or row is None or not hmac.compare_digest(row["hash"], _hash(match[2])):
            raise NotAuthenticated("this token is not valid; `testbed token create` makes one")
        token = _decode_token(row)
        if token.revoked:
            raise NotAuthenticated(f"token {token.id} of {token.name} was revoked; ask for another")
        if datetime.fromisoformat(token.expires) <= (now or datetime.now(UTC)):
            raise NotAuthenticated(
                f"token {token.id} of {token.name} expired {token.expires}; ask for another"
            )
        return token

    def _find_row(self, token_id: str) -> Mapping[str, Any] | None:
        with self._database.open_reading() as connection:
            row = connection.execute(sa.select(tokens).where(tokens.c.id == token_id)).mappings().first()
        return dict(row) if row else None


def _decode_token(row: Mapping[str, Any]) -> Token:
    collections = {name: tuple(filter(None, row[name].split(","))) for name in ("scopes", "labs")}
    return Token(**{name: row[name] for name in Token.__slots__} | collections)


def _make_audit_entry(action: str, token: Token) -> AuditEntry:
    """Return the line of the audit log. The role in it is admin, because the author can write the database."""
    limits = " ".join(["", *token.scopes, *token.labs])
    return AuditEntry(
        LocalUser(get_current_person(), "admin"),
        action,
        outcome=f"token {token.id} of {token.name}, {token.role}{limits}",
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
