"""Paths that modules had in the release before: importable for one release, with a warning."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from lightbed.moved import MovedModules

MOVED = {
    "calibration": "kit.calibration",
    "calibration.batch": "kit.calibration.measurement.batch",
    "calibration.factory": "kit.factory_calibration",
    "calibration.transfer": "kit.calibration.measurement.transfer",
    "checks": "kit.checks",
    "compiler.cycles": "compiler.datapath.cycles",
    "compute": "kit.compute",
    "config": "kit.config",
    "control": "kit.control",
    "devices": "kit.devices",
    "devices.address": "kit.connection",
    "devices.recording": "kit.recordings.recording",
    "devices.replay": "kit.recordings.replay",
    "dot": "kit.dot",
    "dot.look": "kit.dot.inspection",
    "execution.brute": "execution.multipliers.per_readout",
    "execution.chain": "execution.chains.chain",
    "execution.datapath": "execution.multipliers.datapath",
    "execution.faults": "execution.quirks",
    "execution.fitted": "execution.multipliers.fitted",
    "execution.opening": "execution.factory",
    "execution.seam": "execution.interface",
    "execution.walk": "execution.interpreter",
    "instruments": "kit.instruments",
    "networks.imports.torch_module": "networks.imports.torch.module",
    "pictures": "kit.plots",
    "pictures.canvas": "canvas",
    "pictures.noise_curves": "training.curve_plot",
    "profiles": "kit.profiles",
    "programs": "kit.programs",
    "serving.datagrams": "serving.packets.server",
    "serving.hot": "serving.http.fast_path",
    "serving.loaded": "serving.model_instance",
    "settings": "kit.settings",
    "signal_processing": "kit.signal_processing",
    "waveform": "kit.waveform",
}
"""Modules, and rooms with all that is in them."""


class MovedRooms(MovedModules):
    """Imports the modules of a room that moved from there, too."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved, None for all others."""
        package, _, name = fullname.partition(".")
        if package == "lightning" and name not in MOVED:
            room, _, module = name.rpartition(".")
            if room in MOVED:
                self._moved[fullname] = f"lightning.{MOVED[room]}.{module}"
        return super().find_spec(fullname, path, target)


def keep_importable() -> None:
    """Let all modules of `MOVED` be imported as before: first of all finders, lest a module be imported twice."""
    sys.meta_path.insert(
        0, MovedRooms({f"lightning.{old}": f"lightning.{new}" for old, new in MOVED.items()})
    )
