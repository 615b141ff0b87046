"""Machine code of the simulators, the searches and the photonic kernels, made at installation.

Each command uses what numba translates once; `lightbed.compiled` keeps it in the user's cache folder, so that the
first `testbed simulate` of a user, and every test, finds it there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.installation.processes import run

FOLDERS = (
    "lightbed",
    "lightning/execution/kernels",
    "lightning/serving/packets",
    "sim/models/contention",
    "sim/models/network/engine",
    "sim/twins/rfsoc/signals",
    "sim/twins/rfsoc/tproc_v1",
    "testbed/design/matching",
    "testbed/design/routing",
    "testbed/design/search",
)
"""Where the translated functions stand; a change there makes new translations."""

_SMALL = ("vgg16", "--nodes", "4", "--set", "batch_per_device=2")
_KERNELS = """
from importlib import import_module
from pkgutil import iter_modules
from lightning.execution import kernels
for module in iter_modules(kernels.__path__):
    import_module(f"{kernels.__name__}.{module.name}")
"""

# The kit's processor has to be there before a shot: its driver gives up a shot that takes as long as a translation.
_PROCESSOR = """
from sim.twins.rfsoc.tproc_v1 import TprocV1, instructions
(end,) = (code for code, instruction in instructions.INSTRUCTIONS.items() if instruction.name == "end")
processor = TprocV1(1024, 64)
processor.load_bin_program([end << 56])
processor.run(None)
"""

_PLAN = "PLAN"
"""Stands for a file that is thrown away."""

CHAINS: Sequence[Sequence[Sequence[str]]] = (
    (
        ("bin/testbed", "simulate", *_SMALL),
        ("bin/testbed", "optimise", *_SMALL, "--steps", "20", "--chains", "1", "-o", _PLAN),
    ),
    (
        ("bin/python", "-c", _KERNELS),
        ("bin/python", "-c", _PROCESSOR),
        ("bin/lightning", "multiply", "100", "50", "--device", "sim://kit"),
        ("bin/testbed", "simulate", *_SMALL, "--routing", "hash"),
    ),
)
"""Commands that use machine code, program first. Chains run beside each other."""


def translate(environment: Path, tick: Callable[[], None]) -> str:
    """Run the commands, two at a time, and return the output of one that fails: its users translate themselves."""

    def run_chain(chain: Sequence[Sequence[str]]) -> str:
        for program, *arguments in chain:
            words = [plan if word == _PLAN else word for word in arguments]
            done = run([environment / program, *words], tick=tick)
            if done.status:
                return done.last_lines
        return ""

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(CHAINS)) as pool:
        plan = f"{folder}/plan.json"
        return "\n".join(filter(None, pool.map(run_chain, CHAINS)))
