"""Roles, scopes and identities: what somebody may do. The role that a route needs stands in the table of routes."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.commands.declare import Role
from testbed.service_errors import NotAllowed

ROLES: tuple[Role, ...] = ("viewer", "operator", "developer", "admin")
"""Roles, each of which may do all that those before it may."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person or program that asks: its role, and the scopes and labs that limit it (empty: all)."""

    name: str
    role: Role
    scopes: frozenset[str] = frozenset()
    labs: frozenset[str] = frozenset()
    is_anonymous: bool = False

    def has(self, role: Role) -> bool:
        """Return whether the role is this one or above."""
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
        if not self.has(role):
            raise NotAllowed(f"this needs the role {role}, but {self.name} has {self.role}; ask an admin")

    def check_lab(self, lab: str) -> None:
        """Raise `NotAllowed` for a lab that the token is not for."""
        if not self.sees(lab):
            raise NotAllowed(f"this token of {self.name} is for {', '.join(sorted(self.labs))} only")

    def sees(self, lab: str) -> bool:
        """Return whether the token is for this lab."""
        return not self.labs or lab in self.labs


ANONYMOUS = Identity("anonymous", "viewer", is_anonymous=True)
"""Somebody without a token, where the service lets them look."""
