"""Execution of QICK scripts on any device: `lightning run SCRIPT --device sim://kit`.

A script for a board starts with `from qick import QickSoc`. QICK defines this class only on a board. `run_script`
replaces `QickSoc`, `qick.qick.QickSoc` and `qick.pyro.make_proxy` so that they return the chosen device. The script
runs as `__main__` with its own arguments. Afterwards all replacements are undone.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from lightning.errors import ScriptError
from lightning.kit.connection import connect
from lightning.optional import require

EXIT_INTERRUPTED = 130


def run_script(script: str | Path, device: str | Any, arguments: Sequence[str] = ()) -> int:
    """Run a script with this device as its QickSoc, and return the exit code that `python SCRIPT` would return.

    `device` is an address, or the result of `lightning.connect`. If the script fails, print its traceback like Python
    and return 1. Raise `ScriptError` if the script does not exist, and the errors of `connect`.
    """
    path = Path(script)
    if not path.is_file():
        raise ScriptError(f"there is no script {str(path)!r}", hint="Check the path")
    soc = connect(device) if isinstance(device, str) else device
    with replace_qick_soc(soc), _set_arguments(path, arguments):
        return _run_path(path)


def _run_path(path: Path) -> int:
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as exit_request:
        return _find_exit_code(exit_request.code)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseException as error:  # noqa: BLE001  the script may raise anything
        error.__traceback__ = _skip_to_script(error.__traceback__, path)
        traceback.print_exception(error)
        return 1
    return 0


def _find_exit_code(code: Any) -> int:
    """Return Python's exit code for `SystemExit(code)`: 0 for None, and 1 for text, which is printed."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    sys.stderr.write(f"{code}\n")
    return 1


def _skip_to_script(start: TracebackType | None, path: Path) -> TracebackType | None:
    """Return the traceback from the script's first frame on, or None if the script did not start."""
    traceback_entry = start
    while traceback_entry is not None and traceback_entry.tb_frame.f_code.co_filename != str(path):
        traceback_entry = traceback_entry.tb_next
    return traceback_entry


@contextlib.contextmanager
def _set_arguments(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv` and the first entry of `sys.path` as under `python SCRIPT ARGUMENTS`."""
    arguments_before, import_path = sys.argv, sys.path
    sys.argv = [str(path), *arguments]
    sys.path = [str(path.resolve().parent), *import_path[1:]]
    try:
        yield
    finally:
        sys.argv, sys.path = arguments_before, import_path


@contextlib.contextmanager
def replace_qick_soc(soc: Any) -> Iterator[None]:
    """Replace QickSoc by this device inside the block, in all modules from which scripts import it."""
    qick = require("qick", "to run QICK scripts")
    replacement_class = _make_replacement_class(soc)
    qick_module = ModuleType("qick.qick", "QickSoc of the chosen device.")
    qick_module.QickSoc = replacement_class  # type: ignore[attr-defined]
    pyro_module = _make_proxies(soc, qick)
    with (
        _replace(sys.modules, {"qick.qick": qick_module, "qick.pyro": pyro_module}),
        _replace(vars(qick), {"QickSoc": replacement_class, "qick": qick_module, "pyro": pyro_module}),
    ):
        yield


def _make_replacement_class(soc: Any) -> type:
    """Return a class whose call returns this device. It accepts the arguments of a board."""

    class OneDevice(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return soc

        def __instancecheck__(cls, instance: Any) -> bool:
            return instance is soc

    return OneDevice("QickSoc", (), {"__doc__": "The device that `lightning run` was given."})


def _make_proxies(soc: Any, qick: ModuleType) -> ModuleType:
    """Return a module `qick.pyro` whose proxy is this device. With Pyro4, it also has QICK's other names."""
    module = ModuleType("qick.pyro", "QICK's proxies; make_proxy returns the chosen device.")
    with contextlib.suppress(ImportError):
        vars(module).update(
            {
                name: value
                for name, value in vars(import_module("qick.pyro")).items()
                if not name.startswith("__")
            }
        )

    def make_proxy(*_: Any, **__: Any) -> tuple[Any, Any]:
        return soc, qick.QickConfig(soc.get_cfg())

    module.make_proxy = make_proxy  # type: ignore[attr-defined]
    return module


_ABSENT = object()


@contextlib.contextmanager
def _replace(table: dict[str, Any], entries: Mapping[str, Any]) -> Iterator[None]:
    original = {name: table.get(name, _ABSENT) for name in entries}
    table.update(entries)
    try:
        yield
    finally:
        for name, value in original.items():
            if value is _ABSENT:
                table.pop(name, None)
            else:
                table[name] = value
