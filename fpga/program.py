"""Programs that a driver loads: a value for every target, layer by layer, for one particular datapath.

A program carries the datapath it is for (its representation, `fpga.count_action.Datapath`), so a file of a
program is all that a driver needs in addition to a bus.
"""

from __future__ import annotations

import difflib
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fpga.count_action.json_form import datapath_from_json
from fpga.count_action.model import Datapath, Target
from fpga.errors import FpgaError

Layer = Mapping[str, int]
"""`module.target` to value."""


class ProgramError(FpgaError, ValueError, code="fpga.program"):
    """A program that cannot be for its datapath; the message says what to change."""


@dataclass(frozen=True)
class Program:
    """Targets of each layer, by `module.target`; one that a layer does not name has the value of the text.

    Raises ProgramError for a name that the datapath does not have, and for a value that its target cannot hold.
    """

    datapath: Datapath
    layers: tuple[Layer, ...] = ({},)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ProgramError(
                "a program needs at least one layer, which may be empty: Program(datapath, ({},))."
            )
        names = {f"{module.name}.{target.name}": target for module, target in self.datapath.targets()}
        layers = tuple(_check_layer(number, layer, names) for number, layer in enumerate(self.layers))
        object.__setattr__(self, "layers", layers)

    @property
    def digest(self) -> int:
        """The hash that hardware must have to run this."""
        return self.datapath.digest

    def targets(self, layer: int) -> tuple[tuple[str, str, int], ...]:
        """Return the module, target and value of every target in a layer.

        Raises ProgramError for a layer that is not there.
        """
        place = operator.index(layer) if hasattr(layer, "__index__") else -1
        if not 0 <= place < len(self.layers):
            raise ProgramError(
                f"no layer {layer!r}: the program has {len(self.layers)}, counted from 0. Choose one of them."
            )
        values = self.layers[place]
        return tuple(
            (module.name, target.name, values.get(f"{module.name}.{target.name}", target.reset))
            for module, target in self.datapath.targets()
        )

    def to_json(self) -> str:
        """Return the text that `program_from_json` takes."""
        document = {
            "hash": f"{self.digest:08x}",
            "layers": [dict(layer) for layer in self.layers],
            "datapath": json.loads(self.datapath.to_json()),
        }
        return json.dumps(document, indent=1) + "\n"


def program_from_json(text: str) -> Program:
    """Read what `Program.to_json` has written. Raises ProgramError when it is not that, or was changed since."""
    try:
        document: Any = json.loads(text)
        layers = tuple(dict(layer) for layer in document["layers"])
        datapath = datapath_from_json(json.dumps(document["datapath"]))
        digest = document["hash"]
    except (KeyError, TypeError, ValueError) as error:
        raise ProgramError(f"not a valid program: {error!r}. Write it with Program.to_json().") from error
    if digest != f"{datapath.digest:08x}":
        raise ProgramError(
            f"the program is for hash {digest}, but the datapath in it has {datapath.digest:08x}: one of them was"
            " changed by hand. Write the program again with Program.to_json()."
        )
    return Program(datapath, layers)


def _check_layer(number: int, layer: Layer, names: Mapping[str, Target]) -> dict[str, int]:
    return {name: _value(f"layer {number}", name, value, names) for name, value in layer.items()}


def _value(where: str, name: str, value: Any, names: Mapping[str, Target]) -> int:
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
        raise ProgramError(f"{where}: no target {name!r}. {hint}")
    width = names[name].width
    try:
        number = operator.index(value)
    except TypeError:
        raise ProgramError(f"{where}: {name} is {value!r}, but a target must be an integer.") from None
    if not 0 <= number < 1 << width:
        raise ProgramError(
            f"{where}: {name} is {number}, and its {width} bits hold 0 to {(1 << width) - 1}. Choose a smaller"
            " value, or give the target a greater width in the module."
        )
    return number
