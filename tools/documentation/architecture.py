"""Picture of the packages, `docs/architecture.svg`, from import contracts and first sentences of docstrings.

`python -m tools.documentation.architecture` writes the picture.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "architecture.svg"
LOWER_PACKAGES = (
    ("lightning", "sim.lab"),
    ("fpga", "sim.twins"),
    ("ocs_drivers", "sim.models"),
    ("lightbed",),
)
"""Packages beside `testbed`, from the top: each imports from the rows below it, as the contracts say."""

WIDTH, BOX, GAP, LINE = 1100, 62, 10, 15
_LEFT = 690
"""Width of the column of `testbed`."""


def read_layers() -> list[list[str]]:
    """Return the packages of `testbed` by layer, top layer first, from the contract in `pyproject.toml`."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["testbed"]]
    return [[f"testbed.{name.strip()}" for name in layer.split("|")] for layer in layers]


def read_first_sentence(module: str) -> str:
    """Return the first sentence of a module's docstring."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return text.replace("\n", " ").partition(". ")[0].rstrip(".").replace("`", "")


def _draw_boxes(rows: list[list[str]], x_left: float, width: float, y_top: float) -> Iterator[str]:
    """Yield a box for each module, row by row from `y_top`."""
    for number, row in enumerate(rows):
        box_width = (width - GAP * (len(row) - 1)) / len(row)
        for column, module in enumerate(row):
            x, y = x_left + column * (box_width + GAP), y_top + number * (BOX + GAP)
            yield f'<rect x="{x:.0f}" y="{y}" width="{box_width:.0f}" height="{BOX}" rx="4"/>'
            yield f'<text class="name" x="{x + 8:.0f}" y="{y + 17}">{escape(module.removeprefix("testbed."))}</text>'
            lines = textwrap.wrap(
                read_first_sentence(module), max(12, int(box_width / 5.9)), max_lines=3, placeholder=" ..."
            )
            for line, text in enumerate(lines):
                yield f'<text x="{x + 8:.0f}" y="{y + 32 + line * 13}">{escape(text)}</text>'


def draw() -> str:
    """Return the picture as SVG. Packages import only from rows below them."""
    layers = read_layers()
    height = 40 + len(layers) * (BOX + GAP) + 10
    below = 40 + (len(layers) - len(LOWER_PACKAGES)) * (BOX + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="11">',
        "<style>text{font-family:sans-serif}rect{fill:#f4f7fa;stroke:#5a6b7b}text{fill:#22303c}.name{font-weight:bold;font-size:12px}</style>",
        '<text class="name" x="10" y="24">testbed: upper packages import lower ones</text>',
        *_draw_boxes(layers, 10, _LEFT - 20, 40),
        f'<text class="name" x="{_LEFT + 10}" y="{below - 14}">the packages under it, and beside it</text>',
        *_draw_boxes([list(row) for row in LOWER_PACKAGES], _LEFT + 10, WIDTH - _LEFT - 20, below),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
