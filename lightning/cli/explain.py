"""`lightning explain MODEL`: what became of every layer, cycles line by line, memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightning.cli.options import AsJson
from lightning.cli.output import DONE, print_document

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.compiler.explain import NodeReport, Report

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A .lng, or an .npz of weights without biases.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(model: Model, *, as_json: AsJson = False) -> int:
    """Say layer by layer what light computes and what not, and why; cycles, memory, and where the model comes from.

    For example: lightning explain model.lng
    """
    from lightning.compiler import load_or_compile
    from lightning.compiler.explain import report

    compiled = load_or_compile(model)
    found = report(compiled)
    if as_json:
        print_document(None, {"model": str(model), **found.document, "origin": dict(compiled.origin)})
        return DONE
    print("\n".join([*summary(found), "", *cycle_table(found), "", *memory_lines(found), *_origin(compiled)]))
    return DONE


def summary(found: Report) -> list[str]:
    """Return the model in a few lines, then every node."""
    return [
        f"{found.name}, scheme {found.scheme}, sha256 {found.sha256[:16]}",
        f"{100 * found.photonic_share:.2f} % of {found.macs:,} multiply-accumulates by light",
        "",
        *table(
            ["node", "operation", "runs", "gives", "MACs", "zeros", "passes", "why"], map(_row, found.nodes)
        ),
        *[f"note: {note}" for note in found.notes],
    ]


def cycle_table(found: Report) -> list[str]:
    """Return the cycles of one image: a line a layer, a column a kind."""
    from fpga.photonic_mac.cycles import LINES

    layers = [node for node in found.nodes if node.cycles is not None]
    rows = [[node.name, *_cycles([node])] for node in layers]
    rows.append(["all", *_cycles(layers)])
    return [
        *table(["cycles", *LINES.values(), "total"], rows),
        f"{found.cycles:,} cycles, {found.latency_s * 1e6:.1f} us at {found.clock_hz / 1e6:g} MHz, light alone",
    ]


def memory_lines(found: Report) -> list[str]:
    """Return what activations take."""
    plan = found.memory
    return [
        f"activations: {plan.size:,} bytes in {len(plan.buffers)} buffers ({plan.unshared:,} if none shared its place)"
    ]


def table(names: list[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the columns as wide as they must be, those of numbers to the right."""
    columns = [_column(name, list(cells)) for name, cells in zip(names, zip(*rows, strict=True), strict=True)]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _column(name: str, cells: list[str]) -> list[str]:
    width = max(map(len, [name, *cells]))
    numbers = all(each[:1].isdigit() for each in cells if each)
    return [each.rjust(width) if numbers else each.ljust(width) for each in [name, *cells]]


def _row(node: NodeReport) -> list[str]:
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


def _cycles(layers: Sequence[NodeReport]) -> list[str]:
    """Return every line, then all of them, added up over layers."""
    from fpga.photonic_mac.cycles import LINES

    return [f"{sum(getattr(node.cycles, line) for node in layers):,}" for line in (*LINES, "total")]


def _origin(model: CompiledModel) -> list[str]:
    source = model.origin.get("source") or {}
    made = f"compiled by lightbed {model.origin.get('toolkit', 'unknown')}"
    return [f"{made} from {source['file']}, sha256 {source['sha256'][:16]}" if source else made]
