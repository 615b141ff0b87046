"""Options and document keys that the commands for workloads share: `simulate`, `compare` and `optimise`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from testbed.commands.declare import Command, argument, option
from testbed.commands.documents import OMIT_NONE, Document
from testbed.commands.progress import note_compilation
from testbed.design.fabrics import HB_GBPS
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.evaluation.compilation import CodePart
    from testbed.design.evaluation.job import Job
    from testbed.design.fabrics.kind import FabricOptions
    from testbed.design.workloads.choice import WorkloadChoice

SEED_OPTION = option("Random seed; the same seed gives the same answer.", least=0)
DIRECT_DEGREE = 4
"""Default number of links of a server on fabrics that connect servers directly."""


@dataclass(frozen=True, kw_only=True)
class WorkloadCommand(Command[Any]):
    """Options that name a workload, its servers and their devices."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    workload: Annotated[str, argument("A workload of the catalogue, or an ONNX file.", "WORKLOAD")] = ""
    torch: Annotated[
        str,
        option(
            "Instead of WORKLOAD: a function that returns a torch module and its example inputs.",
            metavar="MODULE:FACTORY",
        ),
    ] = ""
    nodes: Annotated[int | None, option("Servers of the job; default: 12.", least=1)] = None
    degree: Annotated[int | None, option("Links of each server.", least=1)] = None
    preset: Annotated[str, option("Published setting: fig11, fig16, testbed.", metavar="NAME")] = ""
    settings: Annotated[
        tuple[str, ...], option("A parameter of the workload (repeatable).", "--set", metavar="KEY=VALUE")
    ] = ()
    device: Annotated[
        str, option("Device of a server: a100 (the default), a100-80gb, a100-80gb-bf16.", metavar="NAME")
    ] = ""
    mig: Annotated[
        int,
        option(
            (
                "Split each server into K logical servers, each with one instance (MIG) of every device and "
                "its share of the links."
            ),
            metavar="K",
            least=1,
            most=7,
        ),
    ] = 1
    profile: Annotated[
        str, option("Measured computing times to use instead of the roofline.", metavar="FILE", is_local=True)
    ] = ""

    def choose_workload(
        self, instance_count: int, *parts: CodePart, zero: int = 0, recompute: bool = False
    ) -> WorkloadChoice:
        """Return the workload that the options name, with devices split into `instance_count`. Raises `WorkloadError`.

        Prints a line if `parts` of the simulator must be compiled first.
        """
        from testbed.design.workloads.choice import DEFAULT_DEVICE, WorkloadChoice, parse_settings
        from testbed.design.workloads.mig import name_instance

        device = (
            name_instance(self.device or DEFAULT_DEVICE, instance_count)
            if instance_count > 1
            else self.device
        )
        if bool(self.workload) == bool(self.torch):
            raise WorkloadError("name a WORKLOAD or a torch module (--torch MODULE:FACTORY), not both")
        name, settings = self.workload or f"torch:{self.torch}", parse_settings(self.settings)
        choice = WorkloadChoice(name, self.preset, settings, device, self.profile, zero, recompute)
        note_compilation(*parts)
        return choice

    def divide_links(
        self, default_degree: int, *, may_share: bool = False
    ) -> tuple[int | None, int | None, float]:
        """Return the number of logical servers, the links of each, and its fraction of a link's rate.

        Without `--mig`, return `nodes`, `degree` and 1. Raises `WorkloadError` for links that cannot be divided.
        """
        from testbed.design.evaluation.job import DEFAULT_NODES
        from testbed.design.workloads.mig import divide_servers

        if self.mig == 1:
            return self.nodes, self.degree, 1.0
        nodes, degree = self.nodes or DEFAULT_NODES, self.degree or default_degree
        return divide_servers(nodes, degree, self.mig, may_share=may_share)


@dataclass(frozen=True, slots=True)
class FabricSetting:
    """A job, and the links and options of the fabrics on which it is simulated."""

    job: Job
    degree: int
    rate_gbps: float
    options: FabricOptions


@dataclass(frozen=True, kw_only=True)
class SimulationCommand(WorkloadCommand):
    """Options of commands that simulate an iteration of a workload on fabrics."""

    workload: Annotated[
        str,
        argument(
            "A workload of the catalogue, an ONNX file, a task graph (.npz), or a folder of Chakra traces.",
            "WORKLOAD",
        ),
    ] = ""
    lab_file: Annotated[
        Path | None,
        option(
            "Lab file that sets servers, their GPUs and links, and the rate; other options override it.",
            "--lab",
            metavar="LAB",
            complete="lab_files",
            is_local=True,
        ),
    ] = None
    rate_gbps: Annotated[
        float | None, option("Rate of one link, in Gbit/s; default: the plan's, else 100.", metavar="R")
    ] = None
    strategy: Annotated[
        str,
        option(
            (
                "default, data, pipeline:STAGES:MICROBATCHES, disaggregated:PREFILL_SERVERS, or the strategy "
                "of a plan file."
            ),
            metavar="NAME|FILE",
        ),
    ] = ""
    oversubscription: Annotated[
        float, option("Oversubscription of the fabric oversub.", metavar="X", least=1)
    ] = 2.0
    reconfiguration_ms: Annotated[
        float, option("Dark time while circuits change.", metavar="MS", least=0)
    ] = 10.0
    controller: Annotated[
        str,
        option(
            "When circuits move: once, every:MS, per-iteration or per-layer; default: the fabric's.",
            metavar="WHEN",
        ),
    ] = ""
    hysteresis: Annotated[
        float,
        option(
            "Move circuits only if that saves more than X times their dark time; 0: always.",
            metavar="X",
            least=0,
        ),
    ] = 0.0
    look_ahead: Annotated[
        int, option("Layers to come for which per-layer moves circuits early.", metavar="N", least=0)
    ] = 0
    wavelengths: Annotated[
        int | None,
        option(
            "Wavelengths of 25 Gbit/s per node of sip-ocs and sip-ring; default: as many as D links of R.",
            metavar="N",
            least=1,
        ),
    ] = None
    skew: Annotated[
        float,
        option("Popularity of experts: the r-th gets 1/r^S of the samples; 0: even.", metavar="S", least=0),
    ] = 0.0
    fluid: Annotated[
        bool | None,
        option(
            (
                "Simulate all rounds of a ring as one (faster, a few per cent different) or each round. A "
                "plan keeps its own setting."
            ),
            "--fluid/--rounds",
            show_default=False,
        ),
    ] = None
    routing: Annotated[
        str,
        option(
            (
                "Routing of messages: ideal, spread, hash (one path each, packets in queues; --seed draws); "
                "default: the fabric's."
            ),
            metavar="NAME",
        ),
    ] = ""
    hb_domain: Annotated[
        int | None,
        option(
            (
                "GPUs of a server, joined in a domain of high bandwidth; each is then a node of the job. "
                "Default: 1, and on rail fabrics the GPUs of a server of the workload."
            ),
            metavar="K",
            least=1,
        ),
    ] = None
    hb_gbps: Annotated[
        float, option("Rate of a GPU inside its domain, each way.", metavar="R", least=1e-3)
    ] = HB_GBPS
    seed: Annotated[int, SEED_OPTION] = 0

    def make_setting(
        self,
        default_degree: int = DIRECT_DEGREE,
        *,
        may_share: bool = False,
        connects_gpus: bool = False,
        shares_links: bool = False,
        exchanges_by_pair: bool = False,
    ) -> FabricSetting:
        """Return the job that the options name, with links, rate and options of its fabrics.

        - `may_share`: logical servers may share a link, each with a part of its rate.
        - `connects_gpus`: the fabrics connect GPUs, so by default the GPUs of a server form a domain.
        - `shares_links`: the GPUs of a server share its links.
        - `exchanges_by_pair`: all-to-alls are messages between pairs even in a large job.

        Raises the errors of `open_job`, and `WorkloadError` for invalid settings.
        """
        from testbed.design.evaluation.job import open_job
        from testbed.design.fabrics.kind import FabricOptions

        if self.lab_file:
            completed_options = self._fill_from_lab(self.lab_file, shares_links=shares_links)
            return completed_options.make_setting(
                default_degree,
                may_share=may_share,
                connects_gpus=connects_gpus,
                exchanges_by_pair=exchanges_by_pair,
            )
        nodes, degree, rate_share = self.divide_links(default_degree, may_share=may_share)
        choice = self.choose_workload(self.mig, "packets" if self.routing == "hash" else "flows")
        if self.skew:
            choice = replace(choice, skew=self.skew)
        hb_domain = self.hb_domain or (
            choice.devices_per_server if connects_gpus and choice.has_servers else 1
        )
        if hb_domain > 1 and self.mig > 1:
            raise WorkloadError(
                "--hb-domain makes nodes of whole devices, --mig of parts: choose one of them"
            )
        exchanges_by_pair = exchanges_by_pair or self.fluid is not None or self.routing == "hash"
        job = open_job(choice, nodes, self.strategy, hb_domain, exchanges_by_pair=exchanges_by_pair)
        dark_s = self.reconfiguration_ms * 1e-3
        return FabricSetting(
            job,
            job.choose_degree(degree, default_degree),
            job.choose_rate_gbps(self.rate_gbps) * rate_share,
            FabricOptions(
                self.oversubscription,
                dark_s,
                self.seed,
                self.fluid,
                self.routing,
                hb_domain,
                self.hb_gbps,
                self.controller,
                self.hysteresis,
                self.look_ahead,
                self.wavelengths or 0,
            ),
        )

    def _fill_from_lab(self, lab_file: Path, *, shares_links: bool) -> Self:
        """Return the options, where a lab file sets those that are not given.

        With a plan, nodes are servers, not GPUs: a plan is for whole servers. Unless GPUs share the links of their
        server, each GPU has an equal part of the rate. Raises `LabFileError`, `TopologyError`.
        """
        from testbed.design.workloads.strategies import is_named
        from testbed.lab.inventory import load_lab
        from testbed.operate.design import count_usable_nics

        lab = load_lab(lab_file)
        has_plan = bool(self.strategy) and not is_named(self.strategy)
        gpus_per_host = 1 if has_plan else lab.gpus_per_host or 1
        return replace(
            self,
            lab_file=None,
            nodes=self.nodes or len(lab.hosts),
            degree=self.degree or count_usable_nics(lab),
            rate_gbps=self.rate_gbps or lab.link.represents_gbps / (1 if shares_links else gpus_per_host),
            hb_domain=self.hb_domain or gpus_per_host,
        )


@dataclass(frozen=True, kw_only=True)
class JobDocument(Document):
    """Base of documents about a simulated job: its source and its servers.

    `graph` is set for a task graph or a folder of traces, `workload` and the keys after it for a workload.
    `estimated_nodes` counts the nodes of traces that have no duration. `notes` lists what was assumed or dropped in
    traces. `rings` says how AllReduces on rings were simulated: in `rounds`, or `fluid` with all rounds as one flow.
    Flows may begin and end late by the fraction `rounding` of their duration. `exchanges` is `whole` in a large job,
    where an all-to-all is simulated as its load on links. It is `by_pair` in other jobs and on moving circuits.
    """

    job: str
    simulated: bool
    graph: str | None = field(default=None, metadata=OMIT_NONE)
    estimated_nodes: int | None = field(default=None, metadata=OMIT_NONE)
    notes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    preset: str | None = field(default=None, metadata=OMIT_NONE)
    settings: Mapping[str, str] | None = field(default=None, metadata=OMIT_NONE)
    device: str | None = field(default=None, metadata=OMIT_NONE)
    profile: str | None = field(default=None, metadata=OMIT_NONE)
    zero: int | None = field(default=None, metadata=OMIT_NONE)
    recompute: bool | None = field(default=None, metadata=OMIT_NONE)
    skew: float | None = field(default=None, metadata=OMIT_NONE)
    servers: int | None = field(default=None, metadata=OMIT_NONE)
    mig: int | None = field(default=None, metadata=OMIT_NONE)
    workload: str | None = field(default=None, metadata=OMIT_NONE)
    strategy: str | None = field(default=None, metadata=OMIT_NONE)
    operators: int | None = field(default=None, metadata=OMIT_NONE)
    batch: int | None = field(default=None, metadata=OMIT_NONE)
    memory_bytes: int | None = field(default=None, metadata=OMIT_NONE)
    memory_limit_bytes: int | None = field(default=None, metadata=OMIT_NONE)
    hb_domain: int | None = field(default=None, metadata=OMIT_NONE)
    hb_gbps: float | None = field(default=None, metadata=OMIT_NONE)
    nodes: int
    gpus: int
    degree: int
    rate_gbps: float
    rings: Literal["rounds", "fluid"]
    rounding: float
    exchanges: Literal["by_pair", "whole"]


def make_job_keys(setup: FabricSetting, *, exchanges_by_pair: bool = False) -> dict[str, Any]:
    """Return the fields of `JobDocument`.

    `exchanges_by_pair`: all-to-alls are simulated as messages, because circuits move.
    """
    job, options = setup.job, setup.options
    server_fields = {
        "nodes": job.graph.node_count,
        "gpus": job.gpus,
        "degree": setup.degree,
        "rate_gbps": setup.rate_gbps,
    }
    domain_fields = (
        {"hb_domain": options.hb_domain, "hb_gbps": options.hb_gbps} if options.hb_domain > 1 else {}
    )
    rings, rounding = job.choose_precision(options)
    return {
        "job": job.name,
        "simulated": True,
        **job.about,
        **domain_fields,
        **server_fields,
        "rings": rings,
        "rounding": rounding,
        "exchanges": "whole" if job.graph.exchanges and not exchanges_by_pair else "by_pair",
    }


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a simulated iteration (see `testbed.design.evaluation.simulation.compute_figures`)."""

    iteration_ms: float
    compute_ms: float
    mfu: float | None
    bandwidth_tax: float
    payload_bytes: int
    wire_bytes: int
    bytes_in: int
    bytes_out: int
    bytes_forwarded: int
    reconfigurations: int
    outage_ms: float
    allocation_s: float
    busiest_link: float | None
    link_count: int
    tasks: int
    cost_usd: int
    prices_recalled: bool
