"""Records of a run. They are frozen, can be converted to JSON, and are the only input of a report.

A run has a lab (`LabInfo`), topologies with their circuits, phases (events with JSON data, in order), an environment
(versions, seeds, the command), timings and byte counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

from testbed.lab.model import Lab
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing
from testbed.operate.model import Circuit

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

REPATCH = "repatch"
INFERENCE = "inference"
LINK_RATE = "link rate"


@dataclass(frozen=True, slots=True)
class LabInfo:
    """Facts about a lab: its file, its hosts in node order, its switches and its links.

    A simulated link of `rate_mbps` represents a real link of `represents_gbps`. On a real lab both rates are equal.
    """

    name: str
    path: str
    host_names: tuple[str, ...]
    nics: tuple[int, ...]
    switches: tuple[str, ...]
    rate_mbps: float
    represents_gbps: float
    mtu: int

    @property
    def scale(self) -> float:
        """Ratio of the represented to the actual link rate: 25 Gb/s for 100 Mbit/s gives 250."""
        return self.represents_gbps * 1000 / self.rate_mbps

    @classmethod
    def from_lab(cls, lab: Lab) -> LabInfo:
        """Return the record of a lab. It omits the addresses of switches, which may contain a password."""
        return cls(
            name=lab.name,
            path=str(lab.path),
            host_names=tuple(host.name for host in lab.hosts),
            nics=tuple(len(host.nics) for host in lab.hosts),
            switches=tuple(
                f"{switch.name} ({switch.input_count}x{switch.output_count})" for switch in lab.switches
            ),
            rate_mbps=lab.link.rate_mbps,
            represents_gbps=lab.link.represents_gbps,
            mtu=lab.link.mtu,
        )


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """One topology of a run. `links` lists a duplex link once. `reason` is a sentence on why it was chosen."""

    name: str
    nodes: int
    degree: int
    simplex: bool
    strides: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    diameter: int
    mean_hops: float
    reason: str


@dataclass(frozen=True, slots=True)
class StoredCircuit:
    """A cross-connect, which carries a one-way link. `source` and `target` are `host/nic` labels."""

    source: str
    target: str
    switch: str
    input_port: int
    output_port: int

    @classmethod
    def from_circuit(cls, lab: Lab, circuit: Circuit) -> StoredCircuit:
        """Return the record of a planned circuit, with the lab's names."""
        return cls(
            source=lab.nic_label(circuit.link.source),
            target=lab.nic_label(circuit.link.target),
            switch=circuit.switch,
            input_port=circuit.input_port,
            output_port=circuit.output_port,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measured value before and after a re-patch. `cpu_limited` is True if processors limited either value."""

    label: str
    unit: str
    before: float
    after: float
    higher_is_better: bool = True
    cpu_limited: bool = False

    @property
    def gain(self) -> float:
        """Factor by which `after` is better than `before`. Below 1 is a loss.

        It is `after / before` if higher is better, otherwise `before / after`, and 0 if the divisor is 0.
        """
        numerator, denominator = (
            (self.after, self.before) if self.higher_is_better else (self.before, self.after)
        )
        return numerator / denominator if denominator else 0.0


@dataclass(frozen=True, slots=True)
class Repatch:
    """A change from the topology `source` to `target`: its reason, its costs, and comparisons of before and after.

    `outage_s` is the dark time of the switch. `total_s` lasts until the routes are restored. `stall_s` is the longest
    gap in a TCP stream during the change, `usual_gap_s` the median gap (both None without a stream).
    """

    source: str
    target: str
    reason: str
    circuits_moved: int
    outage_s: float
    total_s: float
    stall_s: float | None = None
    usual_gap_s: float | None = None
    comparisons: tuple[Comparison, ...] = ()

    def to_json(self) -> Mapping[str, Json]:
        """Return the data of the run's phase `REPATCH`."""
        return cast("Mapping[str, Json]", asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Repatch:
        """Invert `to_json`. Raise `TypeError` for unknown or missing fields."""
        fields = dict(cast("Mapping[str, object]", data))
        rows = cast("Sequence[Mapping[str, object]]", fields.pop("comparisons", ()))
        comparisons = tuple(Comparison(**row) for row in rows)  # type: ignore[arg-type]
        return cls(comparisons=comparisons, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles of the latencies of inference requests, in microseconds. `p99` uses the nearest-rank method."""

    min: float
    median: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Inference:
    """Inference requests from a host to a board, over the two circuits between them.

    | field | meaning |
    |---|---|
    | `answered`, `wrong` | number of all answers, and of answers that differ from the expected ones |
    | `lost`, `repeated` | number of requests without any reply, and of requests that were sent again |
    | `refused` | number of the board's refusals, per name in the protocol |
    | `latency_us`, `cycles` | latencies, and median cycles of the board's datapath; None without answers |
    | `picture` | a file of the run, or "" if it could not be drawn |
    | `error` | last error of the host's network |
    """

    model: str
    host: str
    board: str
    circuits: tuple[str, ...]
    requests: int
    answered: int
    wrong: int
    lost: int
    repeated: int
    refused: Mapping[str, int]
    latency_us: Latency | None
    cycles: int | None
    picture: str
    error: str = ""

    @property
    def is_correct(self) -> bool:
        """True if every request got the expected answer."""
        return self.answered == self.requests and not self.wrong

    def to_json(self) -> Mapping[str, Json]:
        """Return the data of the run's phase `INFERENCE`."""
        return cast("Mapping[str, Json]", asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Inference:
        """Invert `to_json`. Raise `TypeError` for unknown or missing fields."""
        fields = dict(cast("Mapping[str, Any]", data))
        latency = fields.pop("latency_us")
        circuits = tuple(fields.pop("circuits"))
        return cls(circuits=circuits, latency_us=Latency(**latency) if latency else None, **fields)


@dataclass(frozen=True, slots=True)
class StoredPhase:
    """An event of a run: a name, the time at which it was recorded, and its data."""

    name: str
    at: datetime
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `testbed runs`. `status` is `running`, `done`, `failed` or `interrupted`. Times are UTC.

    A run whose process died is `interrupted`.
    """

    run_id: str
    directory: Path
    lab: str
    status: str
    started: datetime
    finished: datetime | None
    simulated: bool
    hosts: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Everything that the store holds about one run."""

    summary: RunSummary
    lab: LabInfo
    environment: Mapping[str, Json]
    topologies: tuple[StoredTopology, ...]
    circuits: Mapping[str, tuple[StoredCircuit, ...]]
    phases: tuple[StoredPhase, ...]
    timings: tuple[Timing, ...]
    nic_bytes: tuple[NicBytes, ...]
    ranks: tuple[RankFigures, ...] = ()
    flows: tuple[FlowFigures, ...] = ()
    links: tuple[LinkFigures, ...] = ()

    @property
    def repatches(self) -> tuple[Repatch, ...]:
        """The changes of topology, in order."""
        return tuple(Repatch.from_json(phase.data) for phase in self.phases if phase.name == REPATCH)

    @property
    def inferences(self) -> tuple[Inference, ...]:
        """The inferences on boards, in order."""
        return tuple(Inference.from_json(phase.data) for phase in self.phases if phase.name == INFERENCE)

    def find_topology(self, name: str) -> StoredTopology | None:
        """Return the topology with this name, or None if it was not recorded."""
        return next((topology for topology in self.topologies if topology.name == name), None)
