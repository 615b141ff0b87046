"""The four models and all free parameters of the reproduction.

We committed the values before we compared any result, and have not tuned them. Each value names its source:
`reference` is the public simulator of MixNet, `model` the public configuration of the model, and `assumed` is our
choice, whose effect figure 3 shows. `dp * tp * pp * ep` is 1,024 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from testbed.design.workloads.roofline import A100_80GB_BF16, Device

Source = Literal["reference", "model", "assumed"]

SERVER_GPUS = 8
"""GPUs and NICs of a server (reference)."""


@dataclass(frozen=True, slots=True)
class MoeJob:
    """A mixture of experts, its parallelism and its batch; `sources` names the source of each field.

    A member of the expert-parallel group has `tp` GPUs; `sequences` counts the sequences of a microbatch in one member.
    Every token passes the `shared` experts. `kv_share` is the width of keys and values divided by the width of queries.
    """

    name: str
    layers: int
    hidden: int
    inner: int
    experts: int
    routed: int
    shared: int
    kv_share: float
    sequence: int
    sequences: int
    microbatches: int
    dp: int
    tp: int
    pp: int
    ep: int
    sources: tuple[tuple[str, Source], ...]
    device: Device = A100_80GB_BF16
    skew: float = 0.3

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.dp * self.tp * self.pp * self.ep

    @property
    def region(self) -> int:
        """Number of servers of a region, which holds one expert-parallel group."""
        return self.ep * self.tp // SERVER_GPUS

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch in one member of the expert-parallel group."""
        return self.sequence * self.sequences


_SHAPE_FIELDS = ("layers", "hidden", "inner", "experts", "routed", "shared", "kv_share")
_ASSUMED_FIELDS = ("sequence", "sequences", "microbatches", "dp", "tp", "pp", "ep", "device", "skew")


def _list_sources(reference: tuple[str, ...] = ()) -> tuple[tuple[str, Source], ...]:
    """Return the source of each field: "reference" if listed, else "model" for fields of the shape, else "assumed"."""
    source_of_field: dict[str, Source] = {}
    source_of_field |= dict.fromkeys(_SHAPE_FIELDS, "model")
    source_of_field |= dict.fromkeys(_ASSUMED_FIELDS, "assumed")
    source_of_field |= dict.fromkeys(reference, "reference")
    return tuple(source_of_field.items())


_SIMULATOR_FIELDS = (
    *("layers", "hidden", "inner", "experts", "routed", "sequence", "sequences"),
    *("dp", "tp", "pp", "ep"),
)

MIXTRAL_8X22B = MoeJob(
    "Mixtral 8x22B",
    layers=56,
    hidden=6144,
    inner=16384,
    experts=8,
    routed=2,
    shared=0,
    kv_share=8 / 48,
    sequence=4096,
    sequences=8,
    microbatches=16,
    dp=2,
    tp=8,
    pp=8,
    ep=8,
    sources=_list_sources(_SIMULATOR_FIELDS),
)
MIXTRAL_8X7B = MoeJob(
    "Mixtral 8x7B",
    layers=32,
    hidden=4096,
    inner=14336,
    experts=8,
    routed=2,
    shared=0,
    kv_share=8 / 32,
    sequence=4096,
    sequences=8,
    microbatches=8,
    dp=8,
    tp=4,
    pp=4,
    ep=8,
    sources=_list_sources(),
)
LLAMA_MOE = MoeJob(
    "Llama-MoE",  # 3.5B: the MLP of Llama 2 7B, 11,008 wide, cut into 16 experts
    layers=32,
    hidden=4096,
    inner=688,
    experts=16,
    routed=4,
    shared=0,
    kv_share=1.0,
    sequence=4096,
    sequences=8,
    microbatches=8,
    dp=4,
    tp=4,
    pp=4,
    ep=16,
    sources=_list_sources(),
)
QWEN_MOE = MoeJob(
    "Qwen-MoE",  # Qwen1.5-MoE-A2.7B; 60 experts on 16 members: twelve have four, four have three
    layers=24,
    hidden=2048,
    inner=1408,
    experts=60,
    routed=4,
    shared=4,
    kv_share=1.0,
    sequence=4096,
    sequences=8,
    microbatches=8,
    dp=4,
    tp=4,
    pp=4,
    ep=16,
    sources=_list_sources(),
)
JOBS = (MIXTRAL_8X22B, MIXTRAL_8X7B, LLAMA_MOE, QWEN_MOE)

RATES_GBPS = (100, 200, 400, 800)
"""Rates of a NIC (reference)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Parameters of the networks.

    | field | meaning | source |
    |---|---|---|
    | `circuit_ports` | NICs of a server on the circuit switch of its region, of 8 | reference |
    | `reconfiguration_s` | dark time of the circuit switch | reference |
    | `local_bytes_per_s` | NVSwitch, each way and GPU | data sheet of the A100 |
    | `ring_ports` | NICs of TopoOpt for data-parallel rings; one more goes to the pipeline | assumed |
    | `bytes_per_value` | activations and gradients in half precision | assumed |
    | `policy` | MixNet's circuits `per-layer`, `per-iteration`, or the `faster` one | assumed |
    | `by_member` | popular experts differ by member as well as by layer | assumed |
    """

    circuit_ports: int = 6
    reconfiguration_s: float = 25e-3
    local_bytes_per_s: float = 300e9
    ring_ports: int = 1
    bytes_per_value: int = 2
    policy: Literal["faster", "per-layer", "per-iteration"] = "faster"
    seed: int = 0
    by_member: bool = False


SETTING = Setting()
