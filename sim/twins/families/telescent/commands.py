"""The command table: what is typed, and what the frame does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sim.twins.families.telescent.frame import Frame
from sim.twins.families.telescent.syntax import Printer
from sim.twins.frontends.cli import CommandError, Handler, Typed


class Commands:
    """The commands of the command line on one frame."""

    def __init__(self, frame: Frame, printer: Printer) -> None:
        self._frame = frame
        self._printer = printer

    def table(self) -> Mapping[str, Handler]:
        """Return commands by their pattern."""
        force = r"(?:\s+--force)?"
        side = r"(?:\s+-(?P<side>in|out))?"
        return {
            r"switchstate": self._asked(lambda _: self._printer.table(self._frame)),
            r"switchstate\s+input\s+(?P<port>\d+)": self._asked(self._input),
            rf"unlock{force}{side}\s+(?P<port>\d+)": self._told(self._unlock, self._opens),
            rf"connect{force}\s+-in\s+(?P<source>\d+)\s+-out\s+(?P<output>\d+)": self._told(self._connect),
            rf"connect{force}\s+(?P<source>\d+)\s+(?P<output>\d+)": self._told(self._connect_both_ways),
            rf"unallocate{force}{side}\s+(?P<port>\d+)": self._told(self._unallocate),
        }

    def _asked(self, answer: Callable[[Typed], str]) -> Handler:
        """Return the handler of a question, with refusals as the device prints them."""

        def handler(typed: Typed) -> str:
            try:
                return answer(typed)
            except CommandError as error:
                return self._printer.error(str(error))

        return handler

    def _told(
        self, do: Callable[[Typed], None], would_do: Callable[[Typed], bool] = lambda _: True
    ) -> Handler:
        """Return the handler of an order; a fault may swallow one that would do something."""

        def answer(typed: Typed) -> str:
            if would_do(typed) and self._frame.device.faults.take_dropped_command():
                return ""
            do(typed)
            return "OK"

        return self._asked(answer)

    def _input(self, typed: Typed) -> str:
        return self._printer.input_state(self._frame, int(typed.match["port"]))

    def _unlock(self, typed: Typed) -> None:
        self._frame.unlock(*self._named(typed))

    def _opens(self, typed: Typed) -> bool:
        """Return True if a lock is closed that this would open."""
        return any(map(self._frame.is_locked, self._named(typed)))

    def _connect(self, typed: Typed) -> None:
        pair = self._frame.source(int(typed.match["source"])), self._frame.output(int(typed.match["output"]))
        self._frame.connect(pair, typed.user)

    def _connect_both_ways(self, typed: Typed) -> None:
        """Make two circuits: the input of each port to the output of the other."""
        self._connect(typed)
        there, here = int(typed.match["output"]), int(typed.match["source"])
        self._frame.connect((self._frame.source(there), self._frame.output(here)), typed.user)

    def _unallocate(self, typed: Typed) -> None:
        for port in self._named(typed):
            self._frame.unallocate(port, typed.user)

    def _named(self, typed: Typed) -> tuple[int, ...]:
        """Return the inputs and outputs that a command names: one direction of a port, or both."""
        source, output = self._frame.sides(int(typed.match["port"]))
        return {"in": (source,), "out": (output,)}.get(typed.match["side"] or "", (source, output))
