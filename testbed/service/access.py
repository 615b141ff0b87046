"""Roles, scopes and identities of clients. The table of routes says which role a route needs."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.commands.declare import Role
from testbed.service_errors import NotAllowed

ROLES: tuple[Role, ...] = ("viewer", "operator", "developer", "admin")
"""Roles, lowest first. Each includes the rights of the lower roles."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person or program that sends requests. `scopes` and `labs` limit its rights, unless they are empty."""

    name: str
    role: Role
    scopes: frozenset[str] = frozenset()
    labs: frozenset[str] = frozenset()
    is_anonymous: bool = False

    def has_role(self, role: Role) -> bool:
        """Return whether the identity has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def check(self, role: Role, scope: str, lab: str = "") -> None:
        """Raise `NotAllowed` unless the identity has the role and scope, and may use the lab."""
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
        if not self.may_see(lab):
            raise NotAllowed(f"this token of {self.name} is for {', '.join(sorted(self.labs))} only")

    def may_see(self, lab: str) -> bool:
        """Return whether the token is valid for this lab."""
        return not self.labs or lab in self.labs


ANONYMOUS = Identity("anonymous", "viewer", is_anonymous=True)
"""A client without a token. It may only read, and only if the service allows that."""
