"""Records of a run: frozen, convertible to JSON, and the only input of a report.

A run has a lab (`LabInfo`), topologies with their circuits, phases (JSON, in order), an environment
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
    """Facts of the lab in a report: its file, its hosts in node order, its switches and its links.

    `represents_gbps` is what a link of `rate_mbps` stands for (the same speed on a real lab).
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
        """Return the record of a lab, without the addresses of switches, which may hold a password."""
        return cls(
            name=lab.name,
            path=str(lab.path),
            host_names=tuple(host.name for host in lab.hosts),
            nics=tuple(len(host.nics) for host in lab.hosts),
            switches=tuple(f"{s.name} ({s.inputs}x{s.outputs})" for s in lab.switches),
            rate_mbps=lab.link.rate_mbps,
            represents_gbps=lab.link.represents_gbps,
            mtu=lab.link.mtu,
        )


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """One topology of a run: `links` as `design.Topology.links` gives them (duplex: each pair once).

    `reason` says in a sentence why it was chosen.
    """

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
    """One cross-connect that carries one one-way link: `source` and `target` are `host/nic` labels."""

    source: str
    target: str
    switch: str
    input_port: int
    output_port: int

    @classmethod
    def from_circuit(cls, lab: Lab, circuit: Circuit) -> StoredCircuit:
        """Return the record of a planned circuit, in the lab's names."""
        return cls(
            source=lab.nic_label(circuit.link.source),
            target=lab.nic_label(circuit.link.target),
            switch=circuit.switch,
            input_port=circuit.input_port,
            output_port=circuit.output_port,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure before and after a re-patch; `higher_is_better` says which way is a gain.

    `cpu_limited` says that the hosts' processors bounded one of the two.
    """

    label: str
    unit: str
    before: float
    after: float
    higher_is_better: bool = True
    cpu_limited: bool = False

    @property
    def gain(self) -> float:
        """Factor by which `after` is better; below 1 is a loss, 0 when the worse figure is 0."""
        better, worse = (self.after, self.before) if self.higher_is_better else (self.before, self.after)
        return better / worse if worse else 0.0


@dataclass(frozen=True, slots=True)
class Repatch:
    """A change of topology: source and target, the reason, its cost, and the comparisons of before and after.

    `outage_s` is the switch's own time, `total_s` the time from the first read until routes were restored,
    `stall_s` the longest gap of a TCP stream across the change and `usual_gap_s` its median gap
    (None if no stream was running).
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
        """Return the data of a phase named `REPATCH`."""
        return cast("Mapping[str, Json]", asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Repatch:
        """Return the inverse of `to_json`. Raise `TypeError` for unknown or missing fields."""
        fields = dict(cast("Mapping[str, object]", data))
        rows = cast("Sequence[Mapping[str, object]]", fields.pop("comparisons", ()))
        comparisons = tuple(Comparison(**row) for row in rows)  # type: ignore[arg-type]
        return cls(comparisons=comparisons, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of inference requests, in microseconds; `p99` by nearest rank."""

    min: float
    median: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Inference:
    """Inference requests from a host to a board, over the two circuits between them.

    `answered` counts all answers, `wrong` those that differ from the expected ones, `lost` requests without any reply,
    `repeated` requests that were sent again, `refused` replies of the board by their name in the protocol. `cycles` is
    the median of the board's datapath, and `picture` a file of the run, empty if it could not be drawn. `error` is the
    last error of the host's network. Without answers, `latency_us` and `cycles` are None.
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
    def is_right(self) -> bool:
        """True if every request got the expected answer."""
        return self.answered == self.requests and not self.wrong

    def to_json(self) -> Mapping[str, Json]:
        """Return the data of a phase named `INFERENCE`."""
        return cast("Mapping[str, Json]", asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Inference:
        """Return the inverse of `to_json`. Raise `TypeError` for unknown or missing fields."""
        fields = dict(cast("Mapping[str, Any]", data))
        latency = fields.pop("latency_us")
        circuits = tuple(fields.pop("circuits"))
        return cls(circuits=circuits, latency_us=Latency(**latency) if latency else None, **fields)


@dataclass(frozen=True, slots=True)
class StoredPhase:
    """One event of a run: a name, the time of its record, and its data."""

    name: str
    at: datetime
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `testbed runs`. `status` is `running`, `done`, `failed` or `interrupted`.

    A run whose process ended without finishing it is shown as `interrupted`. Times are UTC.
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
    """Everything the store holds of one run; `hosts` is `kernel`, `model` or `real`."""

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
        """The trials of boards, in order."""
        return tuple(Inference.from_json(phase.data) for phase in self.phases if phase.name == INFERENCE)

    def topology(self, name: str) -> StoredTopology | None:
        """Return the topology of that name, or None if it was not recorded."""
        return next((topology for topology in self.topologies if topology.name == name), None)
