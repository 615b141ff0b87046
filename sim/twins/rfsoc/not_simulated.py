"""Errors for features of a board that its twin lacks. The twin refuses such a feature by its name."""

from __future__ import annotations


class NotSimulated(NotImplementedError):
    """A feature of the board that the twin lacks.

    `feature` is the feature's name in the board's documentation. `hint` says what to do instead.
    """

    def __init__(
        self, feature: str, hint: str = "use a board for it, or leave it out of the program"
    ) -> None:
        super().__init__(f"{feature} is not simulated: {hint}")
        self.feature = feature
        self.hint = hint

    def __reduce__(self) -> tuple[type[NotSimulated], tuple[str, str]]:
        """Return the arguments from which pickle rebuilds the exception at a Pyro client."""
        return type(self), (self.feature, self.hint)


class NotSimulatedAttribute(NotSimulated, AttributeError):
    """An attribute of the board that the twin lacks: `hasattr` is False, and `getattr` returns its default."""
