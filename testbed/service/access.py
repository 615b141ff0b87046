"""Roles, scopes and identities of clients. The table of routes holds the role that each route needs."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.commands.declare import Role
from testbed.service_errors import NotAllowed

ROLES: tuple[Role, ...] = ("viewer", "operator", "developer", "admin")
"""Roles, lowest first; each includes the rights of those before it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person or program that sends requests: its role, and the scopes and labs that limit it (empty: all)."""

    name: str
    role: Role
    scopes: frozenset[str] = frozenset()
    labs: frozenset[str] = frozenset()
    is_anonymous: bool = False

    def has_role(self, role: Role) -> bool:
        """Return whether the identity has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def check(self, role: Role, scope: str, lab: str = "") -> None:
        """Raise `NotAllowed` unless role, scopes and labs allow it."""
        self.check_role(role)
        if self.scopes and scope not in self.scopes:
            raise NotAllowed(f"this token of {self.name} is limited to {', '.join(sorted(self.scopes))}")
        if lab:
            self.check_lab(lab)

    def check_role(self, role: Role) -> None:
        """Raise `NotAllowed` for a lower role."""
        if not self.has_role(role):
            raise NotAllowed(f"this needs the role {role}, but {self.name} has {self.role}; ask an admin")

    def check_lab(self, lab: str) -> None:
        """Raise `NotAllowed` unless the token is valid for this lab."""
        if not self.sees(lab):
            raise NotAllowed(f"this token of {self.name} is for {', '.join(sorted(self.labs))} only")

    def sees(self, lab: str) -> bool:
        """Return whether the token is valid for this lab."""
        return not self.labs or lab in self.labs


ANONYMOUS = Identity("anonymous", "viewer", is_anonymous=True)
"""A client without a token, which may only read, if the service allows it."""
