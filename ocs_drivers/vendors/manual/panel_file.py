"""The file of a panel without a robot, which is the only record of its circuits.

The driver marks an input as doubtful before it asks the person to move the cord; the answer removes the mark. After a
crash or a lost connection the mark remains, and the next read asks where the cord goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lightbed.output_file import replace_file
from ocs_drivers.errors import AddressError, ConnectError
from ocs_drivers.model import CrossConnects


@dataclass(frozen=True, slots=True)
class Panel:
    """Contents of a panel file: name, size, confirmed circuits, and inputs whose cord is unknown."""

    name: str
    inputs: int
    outputs: int
    patched: CrossConnects = field(default_factory=CrossConnects)
    doubtful: frozenset[int] = frozenset()
    labels: Mapping[int, str] = field(default_factory=dict, hash=False)

    def mark_doubtful(self, port: int) -> Panel:
        """Return a copy with an input marked as doubtful."""
        return replace(self, doubtful=self.doubtful | {port})

    def set_cord(self, port: int, output: int | None) -> Panel:
        """Return a copy with a cord from input `port` to `output` (None: no cord) and no other cord at these ports."""
        remaining = {i: o for i, o in self.patched.items() if i != port and o != output}
        connections = CrossConnects(remaining if output is None else {**remaining, port: output})
        return replace(self, patched=connections, doubtful=self.doubtful - {port})


class PanelFile:
    """Reader and writer of the file of one panel; every write is atomic."""

    def __init__(self, path: Path, *, size: tuple[int, int] | None, name: str) -> None:
        self.path = path
        self._size = size
        self._name = name or path.stem

    def read(self) -> Panel:
        """Return the panel; create a missing file if the size is given.

        Raises `ConnectError` if the file cannot be read, `AddressError` if it is invalid or has another size.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return self._create_panel()
        except OSError as error:
            raise ConnectError(f"cannot read the panel file: {error}", device=str(self.path)) from error
        try:
            return self._check_size(_decode_panel(json.loads(text)))
        except (ValueError, KeyError, TypeError) as error:
            raise AddressError(
                f"not a panel file: {error!r}",
                device=str(self.path),
                hint="Fix it, or use another file.",
            ) from error

    def _create_panel(self) -> Panel:
        if self._size is None:
            raise ConnectError(
                "the panel file does not exist yet",
                device=str(self.path),
                hint="Give the size of the panel, as in manual://panel.json?size=24x24.",
            )
        panel = Panel(self._name, *self._size)
        self.write(panel)
        return panel

    def _check_size(self, panel: Panel) -> Panel:
        if self._size is not None and self._size != (panel.inputs, panel.outputs):
            raise AddressError(
                f"the file describes a panel of {panel.inputs}x{panel.outputs}",
                device=str(self.path),
                hint="Remove the size, or use another file.",
            )
        return panel

    def write(self, panel: Panel) -> None:
        """Write the panel and flush it to disk."""
        document = {
            "name": panel.name,
            "size": [panel.inputs, panel.outputs],
            "patched": sorted(panel.patched.items()),
            "doubtful": sorted(panel.doubtful),
            "labels": {str(port): label for port, label in sorted(panel.labels.items())},
        }
        with replace_file(self.path) as file:
            file.write(f"{json.dumps(document, indent=1)}\n".encode())


def _decode_panel(document: dict[str, Any]) -> Panel:
    inputs, outputs = (int(number) for number in document["size"])
    patched_circuits = CrossConnects((int(i), int(o)) for i, o in document["patched"])
    ports = {port for pair in patched_circuits.items() for port in pair} | set(document.get("doubtful", ()))
    if inputs < 1 or outputs < 1 or any(not 1 <= port <= inputs + outputs for port in ports):
        raise ValueError(f"it names a port that a panel of {inputs}x{outputs} does not have")
    return Panel(
        str(document["name"]),
        inputs,
        outputs,
        patched_circuits,
        frozenset(int(port) for port in document.get("doubtful", ())),
        {int(port): str(label) for port, label in document.get("labels", {}).items()},
    )
