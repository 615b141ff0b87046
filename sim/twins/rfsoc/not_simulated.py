"""Refusals: a feature that a board has and its twin has not is refused by name, never imitated by silence."""

from __future__ import annotations


class NotSimulated(NotImplementedError):
    """A function of the board that the twin lacks.

    `what` names it as the board's own documentation does, `hint` says what to do instead.
    """

    def __init__(self, what: str, hint: str = "use a board for it, or leave it out of the program") -> None:
        super().__init__(f"{what} is not simulated: {hint}")
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type[NotSimulated], tuple[str, str]]:
        """Return the parts from which Pyro's pickle rebuilds the exception behind a wire."""
        return type(self), (self.what, self.hint)


class NotSimulatedAttribute(NotSimulated, AttributeError):
    """An attribute of the board that the twin lacks; `hasattr` says no, and `getattr` takes its default."""
