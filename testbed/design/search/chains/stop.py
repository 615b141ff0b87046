"""Early ends of a search: Ctrl-C, and workers that are lost. What was done until then counts."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError
from types import TracebackType


class Stop:
    """Leaves off what goes on inside `with stop:` when something ends it, and remembers why.

    >>> stop = Stop()
    >>> with stop:
    ...     raise KeyboardInterrupt
    >>> stop.why
    'Ctrl-C'
    """

    def __init__(self) -> None:
        self.why = ""
        self.lost = False

    def __bool__(self) -> bool:
        """Return whether anything was left off."""
        return bool(self.why)

    def __enter__(self) -> None:
        """Set nothing up."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if isinstance(error, KeyboardInterrupt):
            self.why = "Ctrl-C"
        elif error is not None and is_loss(error):
            self.lost = True
            self.why = f"a loss of workers ({type(error).__name__})"
        else:
            return False
        return True


def is_loss(error: BaseException) -> bool:
    """Return whether an error says that workers are gone: of processes, of a Dask client, or Dask's own."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"
