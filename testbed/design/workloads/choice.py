"""Choice of a workload: a model of the catalogue or a file, its settings, and its devices.

Two options save memory in training. ZeRO (Rajbhandari et al., 2020) divides data that replicas have in common: from
stage 1 the optimiser state, from stage 2 also gradients, from stage 3 also parameters. Stages 1 and 2 send as many
bytes as an AllReduce, in a ReduceScatter and an AllGather. Stage 3 gathers the parameters for both passes, and sends
1.5 times as many bytes.

Recomputation (Chen et al., 2016) divides the operators into segments, about the square root of their number. It keeps
only the last output of each segment. Other outputs are computed again, one segment at a time, with their sums among
shards. Tables and experts keep their outputs, and messages from other servers are not sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any

from testbed.design.workloads.catalogue import MODELS, make_parameters, workload
from testbed.design.workloads.catalogue.models import parse_model_settings
from testbed.design.workloads.gates import compute_expert_shares
from testbed.design.workloads.mig import PCIE_BYTES_PER_S, count_instances, find_device
from testbed.design.workloads.model import READ_BY_ROWS, Operator, Workload
from testbed.design.workloads.profile import read_profile
from testbed.design.workloads.roofline import Cluster
from testbed.errors import WorkloadError

FILE_SUFFIXES = (".onnx",)
TORCH_PREFIX = "torch:"
"""Prefix of the name of a torch module, before `MODULE:FACTORY`."""
DEFAULT_DEVICE = "a100"

ZERO_STAGES = (0, 1, 2, 3)
MAX_SKEW = 8.0


@dataclass(frozen=True, slots=True)
class WorkloadChoice:
    """Everything needed to build a workload again. Settings are texts, as on a command line; "" means the default.

    - `name`: a model of the catalogue, an ONNX file, or `torch:MODULE:FACTORY`.
    - `device`: may be an instance of a device such as `a100/2`. Servers are then logical servers, see `mig`.
    - `profile`: a file of measured computing times.
    - `zero`, `recompute`: save memory in training, see the module.
    - `skew`: makes some experts more popular, see `apply_skew`.
    """

    name: str
    preset: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    profile: str = ""
    zero: int = 0
    recompute: bool = False
    skew: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the choice as a JSON document, without unused memory savings and skew."""
        optional_fields = {"zero": self.zero, "recompute": self.recompute, "skew": self.skew}
        return {
            "name": self.name,
            "preset": self.preset,
            "settings": dict(self.settings),
            "device": self.device,
            "profile": self.profile,
            **{key: value for key, value in optional_fields.items() if value},
        }

    @property
    def is_file(self) -> bool:
        """True if the model is in an ONNX file or a torch module."""
        return self.name.endswith(FILE_SUFFIXES) or self.name.startswith(TORCH_PREFIX)

    @property
    def has_servers(self) -> bool:
        """True if the choice is a model. The servers of a task graph or a folder of traces are fixed."""
        return self.is_file or self.name in MODELS

    def make_workload(self, nodes: int) -> Workload:
        """Return the workload on `nodes` servers. Raises `WorkloadError` and `OSError`."""
        if self.is_file:
            base_workload = self._import_file(nodes)
        else:
            settings = parse_model_settings(self.name, self.settings)
            base_workload = workload(self.name, nodes, preset=self.preset or None, **settings)
        return apply_skew(apply_savings(base_workload, zero=self.zero, recompute=self.recompute), self.skew)

    def make_cluster(self, nodes: int) -> Cluster:
        """Return the servers with the chosen device. Raises `WorkloadError` for an unknown device, and `OSError`."""
        name = self.device or DEFAULT_DEVICE
        device, instance_count = find_device(name), count_instances(name)
        profile = read_profile(self.profile) if self.profile else None
        cluster = Cluster(nodes, device, self.devices_per_server, profile=profile)
        return (
            replace(cluster, local_bytes_per_s=PCIE_BYTES_PER_S / instance_count)
            if instance_count > 1
            else cluster
        )

    def _import_file(self, nodes: int) -> Workload:
        """Return the workload of a file or module. Settings are batch sizes, `training`, and ONNX dimensions."""
        from testbed.design.workloads.imports import import_onnx
        from testbed.design.workloads.imports.torch_module import import_factory

        if self.preset:
            raise WorkloadError(f"{self.name} is a file, which has no presets: leave out --preset")
        size_by_name = self._parse_sizes()
        samples_per_device, devices_per_server = (
            size_by_name.pop("batch_per_device", 32),
            size_by_name.pop("devices_per_server", 4),
        )
        batch = size_by_name.pop("batch", 0) or samples_per_device * devices_per_server * nodes
        training = bool(size_by_name.pop("training", 1))
        if self.name.startswith(TORCH_PREFIX):
            if size_by_name:
                raise WorkloadError(
                    f"--set {next(iter(size_by_name))}: a torch module only has batch sizes and training"
                )
            return import_factory(
                self.name.removeprefix(TORCH_PREFIX), batch=batch, training=training
            ).workload
        return import_onnx(self.name, batch=batch, training=training, dimensions=size_by_name).workload

    def _parse_sizes(self) -> dict[str, int]:
        invalid_names = [name for name, text in self.settings.items() if not text.isdecimal()]
        if invalid_names:
            raise WorkloadError(
                f"--set {invalid_names[0]}={self.settings[invalid_names[0]]}: give an integer"
            )
        return {name: int(text) for name, text in self.settings.items()}

    @property
    def devices_per_server(self) -> int:
        """Number of devices of a server. Raises `WorkloadError` for an unknown model or setting."""
        if self.is_file:
            return self._parse_sizes().get("devices_per_server", 4)
        settings = parse_model_settings(self.name, self.settings)
        return make_parameters(self.name, self.preset or None, **settings).devices_per_server


def parse_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the settings in texts like "batch=64", by name. Raises `WorkloadError` for other texts.

    >>> parse_settings(["batch=64", "top=1024-1"])
    {'batch': '64', 'top': '1024-1'}
    """
    settings = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name or not value:
            raise WorkloadError(f"--set {text!r} is not KEY=VALUE (example: --set batch=64)")
        settings[name] = value
    return settings


def apply_skew(workload: Workload, skew: float) -> Workload:
    """Return the workload with other popular experts in each layer, see `gates.compute_expert_shares`.

    A skew of 0 means that all are equally popular. Raises `WorkloadError` for a skew out of range, and for a workload
    without experts.
    """
    if not 0 <= skew <= MAX_SKEW:
        raise WorkloadError(f"a skew of {skew}: give 0 to {MAX_SKEW:g}")
    if not skew:
        return workload
    expert_op_indices = [
        op_index
        for op_index, candidate in enumerate(workload.operators)
        if "expert" in candidate.ways and candidate.most_shards
    ]
    if not expert_op_indices:
        raise WorkloadError(f"{workload.name} has no experts: leave out --skew")
    operators = list(workload.operators)
    for op_index in expert_op_indices:
        expert_count, experts_per_token = operators[op_index].most_shards or 1, operators[op_index].routed
        shares = (
            compute_expert_shares(expert_count, experts_per_token, skew, layer=op_index) / experts_per_token
        )
        operators[op_index] = replace(operators[op_index], popularity=tuple(shares.tolist()))
    return replace(workload, operators=tuple(operators))


def apply_savings(workload: Workload, *, zero: int = 0, recompute: bool = False) -> Workload:
    """Return the workload with a stage of ZeRO and with recomputation.

    Raises `WorkloadError` for an unknown stage, and if either is set for a workload without training.
    """
    if zero not in ZERO_STAGES:
        raise WorkloadError(f"ZeRO has no stage {zero}: choose from {', '.join(map(str, ZERO_STAGES))}")
    if not (zero or recompute):
        return workload
    if not workload.training:
        raise WorkloadError(f"{workload.name} is an inference workload: leave out --zero and --recompute")
    operators = [_divide_over_replicas(operator, zero) for operator in workload.operators]
    if recompute:
        operators = _assign_segments(operators)
    return replace(workload, operators=tuple(operators))


def _divide_over_replicas(operator: Operator, zero: int) -> Operator:
    """Return an operator with its state, gradients and parameters divided over replicas, depending on the stage."""
    if not operator.gradient_bytes:
        return operator
    gradient_bytes = min(operator.gradient_bytes, operator.state_bytes)
    divisible_bytes = (operator.state_bytes - gradient_bytes, gradient_bytes, operator.parameter_bytes)
    sent_bytes = operator.gradient_bytes * 3 // 2 if zero == 3 else operator.gradient_bytes
    return replace(operator, divided_bytes=sum(divisible_bytes[:zero]), gradient_bytes=sent_bytes)


def _assign_segments(operators: list[Operator]) -> list[Operator]:
    """Return the operators in segments of about equal output bytes. The last operator of each keeps its output."""
    recomputed_op_indices = [op_index for op_index, operator in enumerate(operators) if _is_cheap(operator)]
    total_bytes, passed_bytes, segment_count = (
        sum(operators[op_index].output_bytes for op_index in recomputed_op_indices),
        0,
        isqrt(len(recomputed_op_indices)),
    )
    segmented_operators = list(operators)
    for op_index in recomputed_op_indices:
        segment = 1 + passed_bytes * segment_count // max(total_bytes, 1)
        passed_bytes += operators[op_index].output_bytes
        if (
            passed_bytes * segment_count // max(total_bytes, 1) < segment
            and op_index != recomputed_op_indices[-1]
        ):
            reduced_bytes = (
                operators[op_index].backward_reduce_bytes + operators[op_index].forward_reduce_bytes
            )
            segmented_operators[op_index] = replace(
                operators[op_index], segment=segment, backward_reduce_bytes=reduced_bytes
            )
    return segmented_operators


def _is_cheap(operator: Operator) -> bool:
    """Return whether computing an operator again sends nothing except sums among its shards."""
    return operator.kind not in READ_BY_ROWS and "expert" not in operator.ways
