"""`testbed token`: tokens of the service. Anybody who can write the database can create them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, Role, argument, option
from testbed.commands.documents import Document
from testbed.commands.groups import INTERVAL_CONVERTER

if TYPE_CHECKING:
    from testbed.storage import tokens


@dataclass(frozen=True, kw_only=True)
class Token(Document):
    """A token without its secret. `revoked` is empty for a valid token."""

    id: str
    name: str
    role: str
    scopes: tuple[str, ...]
    labs: tuple[str, ...]
    created: str
    expires: str
    revoked: str

    def format_line(self) -> str:
        """Return a line for people."""
        limits_text = ", ".join([*self.scopes, *self.labs])
        validity_text = f"revoked {self.revoked}" if self.revoked else f"until {self.expires}"
        return f"{self.id} {self.role} {self.name}, {validity_text}{f', only {limits_text}' if limits_text else ''}"


@dataclass(frozen=True, kw_only=True)
class NewToken(Token):
    """A new token with its text, which is shown only once."""

    token: str


@dataclass(frozen=True, kw_only=True)
class TokenListDocument(Document):
    """All tokens, the oldest first."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, kw_only=True)
class TokenCreate(Command[NewToken]):
    """`testbed token create`. `token_role` is the role of the token. `role` is the role that the command requires."""

    needs = "nothing"
    role = None
    token_role: Annotated[
        Role, option("Role of the token; each role includes the rights of the lower roles.", "--role")
    ] = REQUIRED
    name: Annotated[str, option("Person who will use it; the audit log shows the name.", metavar="NAME")] = ""
    expires: Annotated[float, option("Validity: 12h, 30d.", metavar="TIME", text=INTERVAL_CONVERTER)] = (
        30 * 86400.0
    )
    scopes: Annotated[
        tuple[str, ...],
        option(
            "Limit to this scope, e.g. runs:read (repeatable); default: all scopes of the role.",
            "--scope",
            metavar="SCOPE",
        ),
    ] = ()
    lab: Annotated[
        tuple[str, ...], option("Limit to this lab (repeatable); default: all.", metavar="NAME")
    ] = ()

    def run(self, context: CommandContext) -> NewToken:
        """Create the token. Raises `InvalidRequest`."""
        with _open_store(context) as store:
            token, text = store.create(
                self.name or getpass.getuser(),
                self.token_role,
                lifetime=timedelta(seconds=self.expires),
                scopes=self.scopes,
                labs=self.lab,
            )
        document = NewToken(**token.json(), token=text)
        context.say(text, f"{document.format_line()}; it is shown only once: store it in LIGHTBED_TOKEN")
        return document


@dataclass(frozen=True, kw_only=True)
class TokenList(Command[TokenListDocument]):
    """`testbed token list`."""

    needs = "nothing"
    role = None

    def run(self, context: CommandContext) -> TokenListDocument:
        """List the tokens."""
        with _open_store(context) as store:
            token_documents = tuple(_make_token(token) for token in store.list_tokens())
        context.say(
            *(
                [token.format_line() for token in token_documents]
                or ["no tokens: create one with `testbed token create`"]
            )
        )
        return TokenListDocument(tokens=token_documents)


@dataclass(frozen=True, kw_only=True)
class TokenRevoke(Command[Token]):
    """`testbed token revoke`."""

    needs = "nothing"
    role = None
    token: Annotated[str, argument("Token id, as shown by `testbed token list`.", "ID")] = REQUIRED

    def run(self, context: CommandContext) -> Token:
        """Revoke the token. Raises `NotFound`."""
        with _open_store(context) as store:
            token = _make_token(store.revoke(self.token))
        context.say(token.format_line())
        return token


def _make_token(token: tokens.Token) -> Token:
    return Token(**token.json())


@contextmanager
def _open_store(context: CommandContext) -> Iterator[tokens.TokenStore]:
    from testbed.leases.fence import convert_database_errors
    from testbed.storage.address import get_database_address
    from testbed.storage.database import Database
    from testbed.storage.tokens import TokenStore

    database = Database(get_database_address(context.runs_dir))
    try:
        with convert_database_errors(database):
            yield TokenStore(database)
    finally:
        database.close()
