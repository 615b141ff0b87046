"""Types of the driver interface: capabilities, configurations, steps and their outcomes.

A configuration is simplex: an injective partial map from input ports to output ports (`CrossConnects`).
Every family numbers its inputs 1..N and its outputs N+1..N+M; `PortInfo.name` is the device's own name of a port.
All types are immutable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class CrossConnects(Mapping[int, int]):
    """An injective partial map from input port to output port.

    Iterates in ascending order of input port. Raises `ValueError` if two inputs share an output, or if an input has
    two outputs.

    >>> CrossConnects({2: 49, 1: 50})
    CrossConnects({1: 50, 2: 49})
    >>> CrossConnects({1: 49, 2: 49})
    Traceback (most recent call last):
    ...
    ValueError: output 49 is assigned to inputs 1 and 2
    """

    __slots__ = ("_outputs",)

    def __init__(self, pairs: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        items = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
        input_by_output: dict[int, int] = {}
        for source, target in items:
            if input_by_output.setdefault(target, source) != source:
                raise ValueError(
                    f"output {target} is assigned to inputs {input_by_output[target]} and {source}"
                )
        outputs = dict(sorted(items))
        if len(outputs) != len(set(items)):
            source, target = next((source, target) for source, target in items if outputs[source] != target)
            raise ValueError(f"input {source} is assigned to outputs {target} and {outputs[source]}")
        self._outputs: dict[int, int] = outputs

    def __getitem__(self, port: int) -> int:
        return self._outputs[port]

    def __iter__(self) -> Iterator[int]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __hash__(self) -> int:
        return hash(tuple(self._outputs.items()))

    def __repr__(self) -> str:
        return f"CrossConnects({self._outputs})"

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The pairs (input, output) as a set, for differences."""
        return frozenset(self._outputs.items())

    @property
    def inputs_by_output(self) -> Mapping[int, int]:
        """The inverse map, from output port to input port."""
        return {output: source for source, output in self._outputs.items()}

    def touching(self, ports: Collection[int]) -> frozenset[tuple[int, int]]:
        """Return the pairs whose input or output is one of these ports."""
        return frozenset(pair for pair in self._outputs.items() if pair[0] in ports or pair[1] in ports)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify the configuration (for compare-and-set)."""
        text = ",".join(f"{source}:{output}" for source, output in self._outputs.items())
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Side(Enum):
    """Side of the switch where light enters or leaves."""

    IN = "in"
    OUT = "out"


class PortState(Enum):
    """State of a port, as the device reports it."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FAILED = "failed"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a device, as the device reports it."""

    vendor: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, slots=True)
class PortInfo:
    """One port as the device reports it.

    `name` is the device's name of the port (`1.1.1`, `20017`, `W4`), unique on its side. `label` is a text that users
    assigned. `moves` is the number of moves of the port, or None if the device does not report it.
    """

    number: int
    side: Side
    state: PortState
    label: str = ""
    has_power_monitor: bool = False
    name: str = ""
    moves: int | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of one device, read when it was opened.

    `switch_time_s` is (typical, longest) for one whole-configuration command or one move.
    `hitless_keep` is True only if a measurement showed that unchanged circuits keep their light.
    `bulk_add` is False if a command names one pair. `bank_outputs` is the number of outputs per input in a bank of
    1xN switches: input b reaches only the b-th block of outputs. It is None if any input reaches any output.
    `disconnects` is False if every input is always connected. A `serial_robot` makes one move after another.
    `reads_back` is False if a read returns only what a person confirmed.
    """

    inputs: int
    outputs: int
    atomic_whole: bool = False
    bulk_add: bool = False
    bank_outputs: int | None = None
    disconnects: bool = True
    reads_back: bool = True
    two_step_activate: bool = False
    serial_robot: bool = False
    wear_counter: bool = False
    boot_mode: str | None = None
    session_timeout_s: float | None = None
    hitless_keep: bool = False
    power_monitor: bool = False
    attenuator: bool = False
    shutter: bool = False
    async_events: bool = False
    login: bool = False
    max_ports_per_query: int = 256
    switch_time_s: tuple[float, float] = (0.025, 0.5)


@dataclass(frozen=True, slots=True)
class Power:
    """An optical power reading in dBm; `below_floor` means the monitor sees no light."""

    dbm: float
    below_floor: bool = False


AttenuationMode = Literal["none", "absolute", "relative", "converged"]


@dataclass(frozen=True, slots=True)
class Attenuation:
    """Setting of an output's attenuator, in the device's own modes.

    `level_db` is the device's LEVEL: a power in dBm in the modes `absolute` and `converged`, a loss in dB in the mode
    `relative`. `reference` is the port that `relative` compares with, if any.
    """

    mode: AttenuationMode
    level_db: float | None = None
    reference: int | None = None

    def __post_init__(self) -> None:
        if (self.level_db is None) != (self.mode == "none"):
            raise ValueError(
                f"attenuation mode {self.mode!r} {'takes no level' if self.mode == 'none' else 'needs a level in dB'}"
            )


@dataclass(frozen=True, slots=True)
class Event:
    """Unsolicited message of a device: `kind` is the device's own word (`REPT DBCHG`), `lines` the text.

    `number` counts the events of one driver from 1, so that `events(since=number)` returns the later ones.
    """

    number: int
    monotonic_s: float
    kind: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PendingMove:
    """Move in a robot's queue, as the device reports it: its kind and pair, the user and the source of the request."""

    kind: Literal["connect", "disconnect"]
    pair: tuple[int, int] | None
    user: str = ""
    source: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Configuration of a switch at the time of a read; `monotonic_s` is that time on the reader's clock.

    `unfit` contains the ports that cannot be used now, if the device reports them with its connections.
    `tied` contains groups of pairs that the device keeps as one object, such as a two-way circuit: removing one pair
    removes the group. `pending` contains the moves of all users in a robot's queue.
    """

    connections: CrossConnects
    monotonic_s: float
    unfit: Mapping[int, PortState] = field(default_factory=dict)
    tied: frozenset[frozenset[tuple[int, int]]] = frozenset()
    pending: tuple[PendingMove, ...] = ()

    @property
    def revision(self) -> str:
        """Digest of the connections: two reads with equal revisions saw the same configuration."""
        return self.connections.digest


@dataclass(frozen=True, slots=True)
class Step:
    """Atomic unit of the device: one command that changes `before` to `after`.

    `kind` is `replace` (whole configuration at once), `remove` or `add`; `pairs` are the pairs
    the command names. `estimated_s` is the time that the device takes, without communication.
    """

    kind: Literal["replace", "remove", "add"]
    pairs: CrossConnects
    before: CrossConnects
    after: CrossConnects
    estimated_s: float = 0.0

    @property
    def disturbed(self) -> frozenset[tuple[int, int]]:
        """Pairs whose light may be interrupted: for `replace` all pairs before and after, else `pairs`."""
        if self.kind == "replace":
            return self.before.pairs | self.after.pairs
        return self.pairs.pairs


class Status(Enum):
    """Status of a pair or step after its execution; `UNKNOWN` must be resolved by a read or a person."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a step. Only a read-back yields `DONE`.

    `pairs` gives the status of every pair that the step adds or removes.
    `device_s` is the time from the first byte of the write until the device reported completion.
    """

    status: Status
    pairs: Mapping[tuple[int, int], Status]
    read_back: Snapshot | None
    device_s: float = 0.0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """Report of one apply: the first read (`initial`), the outcomes in order, and the last read-back.

    `pairs` contains the pairs that the steps add or remove, and the pairs in the scope that somebody else changed
    meanwhile. `dark` contains the outputs without light; they are measured only with `require_light`.
    """

    target: CrossConnects
    initial: Snapshot
    steps: tuple[Step, ...]
    outcomes: tuple[Outcome, ...] = ()
    read_back: Snapshot | None = None
    pairs: Mapping[tuple[int, int], Status] = field(default_factory=dict)
    dark: tuple[int, ...] = ()

    @property
    def changed(self) -> bool:
        """True if a step was executed."""
        return bool(self.outcomes)

    @property
    def complete(self) -> bool:
        """True if the device holds the target: every step is done, and nobody has changed a circuit since."""
        return (
            len(self.outcomes) == len(self.steps)
            and all(outcome.status is Status.DONE for outcome in self.outcomes)
            and all(status is Status.DONE for status in self.pairs.values())
        )
