"""Errors for features of a board that its twin lacks: the twin refuses them by name instead of ignoring them."""

from __future__ import annotations


class NotSimulated(NotImplementedError):
    """A feature of the board that the twin lacks.

    `what` is its name in the documentation of the board, and `hint` says what to do instead.
    """

    def __init__(self, what: str, hint: str = "use a board for it, or leave it out of the program") -> None:
        super().__init__(f"{what} is not simulated: {hint}")
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type[NotSimulated], tuple[str, str]]:
        """Return the arguments from which pickle rebuilds the exception at a Pyro client."""
        return type(self), (self.what, self.hint)


class NotSimulatedAttribute(NotSimulated, AttributeError):
    """An attribute of the board that the twin lacks: `hasattr` is False, and `getattr` returns its default."""
