"""Compilation of the simulators, searches and photonic kernels to machine code at installation.

numba compiles their functions once, and `lightbed.compiled` caches the code in the user's cache folder. The first
`testbed simulate` of a user, and every test, then uses the cache.
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
"""Folders of the compiled functions; a change in them causes a new compilation."""

_SMALL = ("vgg16", "--nodes", "4", "--set", "batch_per_device=2")
_KERNELS = """
from importlib import import_module
from pkgutil import iter_modules
from lightning.execution import kernels
for module in iter_modules(kernels.__path__):
    import_module(f"{kernels.__name__}.{module.name}")
"""

# The kit's processor must be compiled before the first shot: its driver aborts a shot that takes as long as that.
_PROCESSOR = """
from sim.twins.rfsoc.tproc_v1 import TprocV1, instructions
(end,) = (code for code, instruction in instructions.INSTRUCTIONS.items() if instruction.name == "end")
processor = TprocV1(1024, 64)
processor.load_bin_program([end << 56])
processor.run(None)
"""

_PLAN = "PLAN"
"""Placeholder for a temporary file."""

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
"""Commands that compile the functions by using them, program first. The chains run in parallel."""


def translate(environment: Path, tick: Callable[[], None]) -> str:
    """Run the chains of commands, and return the output of failures, or "". A failure only delays later commands."""

    def run_chain(chain: Sequence[Sequence[str]]) -> str:
        for program, *arguments in chain:
            words = [plan if argument == _PLAN else argument for argument in arguments]
            result = run([environment / program, *words], tick=tick)
            if result.status:
                return result.last_lines
        return ""

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(CHAINS)) as pool:
        plan = f"{folder}/plan.json"
        return "\n".join(filter(None, pool.map(run_chain, CHAINS)))
