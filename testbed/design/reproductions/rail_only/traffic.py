"""Figure 4: traffic of an iteration of GPT jobs, by kind of parallelism and by pair of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.design.reproductions.figure import (
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Series,
    Table,
)
from testbed.design.reproductions.rail_only.model import GPT_1T, JOBS, Megatron
from testbed.design.reproductions.rail_only.setup import Scale

TENSOR, DATA, PIPELINE = KINDS = ("tensor", "data", "pipeline")
ALLREDUCES_PER_LAYER = 6

_COLUMNS = ("model", "kind", "gb_per_gpu", "pairs_per_gpu", "gpus")


def yield_traffic(job: Megatron) -> Iterator[tuple[str, float, float]]:
    """Yield (kind of parallelism, bytes that a GPU sends in an iteration, number of GPUs that it sends them to).

    AllReduces are rings, so a GPU has one successor in each. Stages exchange activations and gradients: each GPU of a
    tensor-parallel group sends its part to the GPU of equal rank in the next or previous stage.
    """
    t, p, d = job.tensor, job.pipeline, job.replica_count
    layers = job.layers / p
    yield (
        TENSOR,
        ALLREDUCES_PER_LAYER * layers * job.microbatches * 2 * (t - 1) / t * job.activation_bytes,
        float(t > 1),
    )
    yield DATA, 2 * (d - 1) / d * 2 * job.parameters / (t * p), float(d > 1)
    yield PIPELINE, 2 * (p - 1) / p * job.microbatches * job.activation_bytes / t, 2 * (p - 1) / p


def _make_table(_scale: Scale, progress: Progress) -> Table:
    rows = [
        (job.name, kind, sent_bytes / 1e9, peer_count, job.gpus)
        for job in JOBS
        for kind, sent_bytes, peer_count in yield_traffic(job)
    ]
    progress(len(rows), len(rows), "traffic")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = []
    for job in JOBS:
        model_table = table.select_rows(model=job.name)
        sent_gb = model_table.get_numbers("gb_per_gpu")
        silent_share = 1 - sum(model_table.get_numbers("pairs_per_gpu")) / (job.gpus - 1)
        tensor_share = model_table.get_number("gb_per_gpu", kind=TENSOR) / sum(sent_gb)
        lines += [
            Comparison(
                f"{job.name}: share of tensor parallelism",
                PublishedValue("> 75 %", "S"),
                100 * tensor_share,
                "",
                " %",
            ),
            Comparison(
                f"{job.name}: pairs of GPUs without traffic",
                PublishedValue("> 99 %", "S"),
                100 * silent_share,
                "",
                " %",
            ),
        ]
    model_table = table.select_rows(model=GPT_1T.name)
    data_gb, tensor_gb = (model_table.get_number("gb_per_gpu", kind=kind) for kind in (DATA, TENSOR))
    percent_inside = 100 * tensor_gb / (tensor_gb + data_gb)
    return (
        *lines,
        Comparison(
            "GPT 1T: bytes of a GPU over its rail, data parallel",
            PublishedValue("6 GB", "S", 6.0),
            data_gb,
            "read from a heat map",
            " GB",
        ),
        Comparison(
            "GPT 1T: bytes of a GPU in its domain",
            PublishedValue("300 GB", "S", 300.0),
            tensor_gb,
            "six AllReduces per layer and a batch of 3,072; a batch of about 1,200 would give 300 GB",
            " GB",
        ),
        Comparison(
            "GPT 1T: share of the domain",
            PublishedValue("98 %", "S", 98.0),
            percent_inside,
            "the slides' share is that of domains of 256 GPUs, where groups of data parallelism reach the rails less",
            " %",
        ),
    )


def _make_plot(table: Table) -> Plot:
    names = tuple(str(name).removeprefix("GPT ") for name in table.list_values("model"))
    series = tuple(
        Series(kind, names, table.select_rows(kind=kind).get_numbers("gb_per_gpu")) for kind in KINDS
    )
    bars = Panel("by kind of parallelism", "parameters", "GB sent by a GPU", series, "bars", logarithmic="y")
    return Plot("Traffic of GPT jobs, by the model", (bars, _make_heat_map()), max_columns=2)


def _make_heat_map() -> Panel:
    """Return a heat map of the bytes between the 48 GPUs of a small GPT with the same kinds of traffic."""
    job = Megatron("small", 8, 1024, 8, 2, 48, 48)
    sent_by_kind = {kind: size for kind, size, _ in yield_traffic(job)}
    rows = []
    for source in range(job.gpus):
        row = [0.0] * job.gpus
        group, rank = divmod(source, job.tensor)
        stage, copy = divmod(group, job.replica_count)
        row[group * job.tensor + (rank + 1) % job.tensor] += sent_by_kind[TENSOR]
        row[(stage * job.replica_count + (copy + 1) % job.replica_count) * job.tensor + rank] += sent_by_kind[
            DATA
        ]
        for neighbour_stage in (stage - 1, stage + 1):
            if 0 <= neighbour_stage < job.pipeline:
                row[(neighbour_stage * job.replica_count + copy) * job.tensor + rank] += sent_by_kind[
                    PIPELINE
                ]
        rows.append(Series(f"{source}", tuple(map(float, range(job.gpus))), tuple(row)))
    return Panel("48 GPUs: 8 tensor, 3 data, 2 pipeline", "receiving GPU", "sending GPU", tuple(rows), "heat")


FIGURE = Figure(4, "Traffic of GPT jobs", _make_table, _compare_with_paper, _make_plot)
