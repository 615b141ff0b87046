"""`python -m fpga.photonic_mac explain`: the cycles of an inference, by layer and cause."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from fpga.photonic_mac.cycles import CAUSE_LABELS, CLOCK_HZ, LayerCycles, Timing, calculate_cycles, sum_cycles
from fpga.photonic_mac.network import LENET_SHAPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and return exit code 0. Options that are not valid exit with code 2."""
    options = _make_parser().parse_args(arguments)
    shapes = _parse_shapes(options.layers) if options.layers else LENET_SHAPES
    timing = _make_timing(options.preamble, options.delay)
    layers = calculate_cycles(shapes, timing)
    sys.stdout.write(_format_json(layers) if options.json else format_table(shapes, layers))
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fpga.photonic_mac", description=__doc__)
    parser.add_argument("command", choices=["explain"])
    parser.add_argument(
        "--layers", metavar="784-300-100-10", help="sizes, inputs first (default: LeNet-300-100)"
    )
    parser.add_argument(
        "--preamble", type=int, default=10, metavar="CYCLES", help="before every layer (default: 10)"
    )
    parser.add_argument("--delay", type=int, default=7, metavar="CYCLES", help="of the light (default: 7)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser


def _parse_shapes(text: str) -> tuple[tuple[int, int], ...]:
    try:
        sizes = [int(size) for size in text.split("-")]
    except ValueError:
        sizes = []
    if len(sizes) < 2 or min(sizes) < 1:
        _make_parser().error(f"--layers {text!r} is not a list of sizes such as 784-300-100-10")
    return tuple(zip(sizes[1:], sizes, strict=False))


def _make_timing(preamble: int, delay: int) -> Timing:
    try:
        return Timing(preamble, delay)
    except ValueError as error:
        _make_parser().error(str(error))


def _format_json(layers: Sequence[LayerCycles]) -> str:
    return json.dumps({"layers": [asdict(layer) for layer in layers], "total": sum_cycles(layers)}) + "\n"


def format_table(shapes: Sequence[tuple[int, int]], layers: Sequence[LayerCycles]) -> str:
    """Return the table of cycles by cause and layer, with sums and the total time."""
    layer_names = [f"{inputs} to {outputs}" for outputs, inputs in shapes]
    head = f"{'cycles':<30}" + "".join(f"{name:>12}" for name in layer_names) + f"{'all':>12}\n"
    lines = [
        _format_line(name, [asdict(layer)[key] for layer in layers]) for key, name in CAUSE_LABELS.items()
    ]
    total = sum_cycles(layers)
    sums = _format_line("total", [layer.total for layer in layers])
    return (
        head
        + "".join(lines)
        + sums
        + f"{total} cycles, {total / CLOCK_HZ * 1e6:.1f} us at {CLOCK_HZ / 1e6} MHz\n"
    )


def _format_line(name: str, values: Sequence[int]) -> str:
    return f"{name:<30}" + "".join(f"{value:>12}" for value in [*values, sum(values)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
