"""`lightning explain FILE`: where every layer runs, with cycles by kind and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import AsJson, Outputs, Shapes, Values
from lightning.cli.output import EXIT_OK, print_document

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.compiler.explain import NodeReport, Report

Model = Annotated[Path, typer.Argument(metavar="FILE", help="A .lng, an .onnx, or an .npz of weights.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    model: Model,
    shape: Shapes = None,
    value: Values = None,
    output: Outputs = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Report which layers run on light and why, with cycles, memory, and the origin of the model.

    An .onnx needs no samples. For example: lightning explain model.lng
    """
    if model.suffix == ".onnx":
        from lightning.costs.file_report import report_file
        from lightning.networks.imports.onnx.choices import parse_choices

        onnx_report = report_file(model, parse_choices(shape or [], value or [], output or []))
        if as_json:
            print_document(None, {"file": str(model), **onnx_report.document})
        else:
            print("\n".join(format_file_report(model.name, onnx_report.document)))
        return EXIT_OK
    from lightning.compiler import load_or_compile
    from lightning.compiler.explain import report

    compiled_model = load_or_compile(model)
    model_report = report(compiled_model)
    if as_json:
        print_document(
            None, {"model": str(model), **model_report.document, "origin": dict(compiled_model.origin)}
        )
        return EXIT_OK
    print(
        "\n".join(
            [
                *format_summary(model_report),
                "",
                *format_cycles(model_report),
                "",
                *format_memory(model_report),
                *_format_origin(compiled_model),
            ]
        )
    )
    return EXIT_OK


def format_file_report(name: str, document: dict[str, Any]) -> list[str]:
    """Return the report on an ONNX file as lines."""
    conversion = "" if document["converted_to"] is None else f", converted to {document['converted_to']}"
    ports = [
        f"{kind}: {port['name']} {port['shape']} {port['type']}"
        for kind in ("input", "output")
        for port in document[f"{kind}s"]
    ]
    column_titles = ["node", "operation", "where", "MACs", "cycles", "energy (J)", "reason"]
    rows = [_format_file_row(node) for node in document["nodes"]]
    lines = [
        f"{name}, opset {document['opset']}{conversion}",
        *ports,
        "",
        *(format_table(column_titles, rows) if rows else []),
    ]
    share = f"{100 * document['photonic_share']:.2f} % of multiply-accumulates by light"
    lines += ["", f"{share}; energy of preset chip; activations without a rectifier count as signed"]
    lines += [f"note: {note}" for note in document["notes"]]
    for refusal in document["refusals"]:
        title = f"{refusal['node']} ({refusal['operation']}) " if refusal["node"] else ""
        lines.append(f"refused: {title}{refusal['reason']}. {refusal['advice']}")
    return lines


def _format_file_row(node: dict[str, Any]) -> list[str]:
    numbers = [f"{node['macs']:,}", f"{node['cycles']:,}", f"{node['energy_j']:.3g}"]
    return [node["name"], node["operation"], node["where"], *numbers, node["reason"]]


def format_summary(report: Report) -> list[str]:
    """Return the summary of a model as lines, with a table of its nodes."""
    return [
        f"{report.name}, scheme {report.scheme}, sha256 {report.sha256[:16]}",
        f"{100 * report.photonic_share:.2f} % of {report.macs:,} multiply-accumulates by light",
        "",
        *format_table(
            ["node", "operation", "runs", "gives", "MACs", "zeros", "passes", "why"],
            map(_format_row, report.nodes),
        ),
        *[f"note: {note}" for note in report.notes],
    ]


def format_cycles(report: Report) -> list[str]:
    """Return a table of the cycles of one image, with a row per layer and a column per kind of cycle."""
    from fpga.photonic_mac.cycles import CAUSE_LABELS

    layers = [node for node in report.nodes if node.cycles is not None]
    rows = [[node.name, *_sum_cycles([node])] for node in layers]
    rows.append(["all", *_sum_cycles(layers)])
    return [
        *format_table(["cycles", *CAUSE_LABELS.values(), "total"], rows),
        f"{report.cycles:,} cycles, {report.latency_s * 1e6:.1f} us at {report.clock_hz / 1e6:g} MHz, light alone",
    ]


def format_memory(report: Report) -> list[str]:
    """Return the memory of the activations as lines."""
    plan = report.memory
    return [
        (
            f"activations: {plan.size_bytes:,} bytes in {len(plan.buffers)} buffers"
            f" ({plan.unshared_bytes:,} without shared memory)"
        )
    ]


def format_table(column_titles: list[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows as lines of a text table. Columns of numbers are right-aligned."""
    columns = [
        _align_column(title, list(cells))
        for title, cells in zip(column_titles, zip(*rows, strict=True), strict=True)
    ]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _align_column(title: str, cells: list[str]) -> list[str]:
    width = max(map(len, [title, *cells]))
    are_numbers = all(cell[:1].isdigit() for cell in cells if cell)
    return [cell.rjust(width) if are_numbers else cell.ljust(width) for cell in [title, *cells]]


def _format_row(node: NodeReport) -> list[str]:
    work = node.work
    return [
        node.name,
        node.operation,
        "by light" if node.photonic else "digitally",
        " x ".join(map(str, node.shape)) or "1",
        f"{node.macs:,}" if node.macs else "",
        f"{100 * node.zeros:.1f} %" if work is not None else "",
        str(work.passes) if work is not None else "",
        node.why,
    ]


def _sum_cycles(layers: Sequence[NodeReport]) -> list[str]:
    """Return the cycles of each kind, then the total, summed over the layers."""
    from fpga.photonic_mac.cycles import CAUSE_LABELS

    return [f"{sum(getattr(node.cycles, cause) for node in layers):,}" for cause in (*CAUSE_LABELS, "total")]


def _format_origin(model: CompiledModel) -> list[str]:
    source = model.origin.get("source") or {}
    compiler = f"compiled by lightbed {model.origin.get('toolkit', 'unknown')}"
    return [f"{compiler} from {source['file']}, sha256 {source['sha256'][:16]}" if source else compiler]
