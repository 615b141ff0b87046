"""Programs for a driver: the values of all targets in each layer, for one particular datapath.

A program contains the model of its datapath (`fpga.count_action.Datapath`), so a driver needs only a program
file and a bus.
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
"""Values by `module.target`."""


class ProgramError(FpgaError, ValueError, code="fpga.program"):
    """A program that is not valid for its datapath; the message says what to change."""


@dataclass(frozen=True)
class Program:
    """Targets of each layer, by `module.target`; targets that a layer omits have their reset values.

    Raise ProgramError for an unknown name, for a value that its target cannot hold, and if there are no layers.
    """

    datapath: Datapath
    layers: tuple[Layer, ...] = ({},)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ProgramError(
                "a program needs at least one layer, which may be empty: Program(datapath, ({},))."
            )
        targets_by_name = {
            f"{module.name}.{target.name}": target for module, target in self.datapath.list_targets()
        }
        layers = tuple(
            _check_layer(number, layer, targets_by_name) for number, layer in enumerate(self.layers)
        )
        object.__setattr__(self, "layers", layers)

    @property
    def digest(self) -> int:
        """The datapath's digest, which the hardware must report."""
        return self.datapath.digest

    def targets(self, layer: int) -> tuple[tuple[str, str, int], ...]:
        """Return the module, target and value of every target in a layer.

        Raise ProgramError if there is no such layer.
        """
        index = operator.index(layer) if hasattr(layer, "__index__") else -1
        if not 0 <= index < len(self.layers):
            raise ProgramError(
                f"no layer {layer!r}: the program has layers 0 to {len(self.layers) - 1}. Choose one of them."
            )
        values = self.layers[index]
        return tuple(
            (module.name, target.name, values.get(f"{module.name}.{target.name}", target.reset))
            for module, target in self.datapath.list_targets()
        )

    def to_json(self) -> str:
        """Return the program as JSON, for `program_from_json`."""
        document = {
            "hash": f"{self.digest:08x}",
            "layers": [dict(layer) for layer in self.layers],
            "datapath": json.loads(self.datapath.to_json()),
        }
        return json.dumps(document, indent=1) + "\n"


def program_from_json(text: str) -> Program:
    """Return the program that `Program.to_json` has written. Raise ProgramError if it is not valid or was changed."""
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


def _check_layer(layer_number: int, layer: Layer, targets_by_name: Mapping[str, Target]) -> dict[str, int]:
    return {
        name: _check_value(f"layer {layer_number}", name, value, targets_by_name)
        for name, value in layer.items()
    }


def _check_value(layer_name: str, name: str, value: Any, targets_by_name: Mapping[str, Target]) -> int:
    if name not in targets_by_name:
        similar = difflib.get_close_matches(name, targets_by_name, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"There are: {', '.join(targets_by_name)}."
        raise ProgramError(f"{layer_name}: no target {name!r}. {hint}")
    width = targets_by_name[name].width
    try:
        number = operator.index(value)
    except TypeError:
        raise ProgramError(f"{layer_name}: {name} is {value!r}, but a target must be an integer.") from None
    if not 0 <= number < 1 << width:
        raise ProgramError(
            f"{layer_name}: {name} is {number}, and its {width} bits hold 0 to {(1 << width) - 1}. Choose a value"
            " in this range, or give the target a greater width in the module."
        )
    return number
