"""The files of the board that pynq reads and writes: who it is, and the FPGA manager that loads the logic."""

from __future__ import annotations

from collections.abc import Callable

FIRMWARE = "/lib/firmware/"
_MANAGER = "/sys/class/fpga_manager/fpga0/"


class BoardFiles:
    """A file system in memory. Writing the name of a file in `/lib/firmware` to the manager loads it."""

    def __init__(self, board: str, loaded: Callable[[], None]) -> None:
        self._loaded = loaded
        self._files = {
            "/proc/version": b"Linux version 6.6.0-simulated (lightbed, SIMULATED) aarch64\n",
            "/proc/device-tree/chosen/pynq_board": board.encode() + b"\0",
            f"{_MANAGER}state": b"operating\n",
            f"{_MANAGER}flags": b"0\n",
            f"{_MANAGER}firmware": b"",
        }

    def exists(self, path: str) -> bool:
        """Return True if there is a file."""
        return path in self._files

    def read(self, path: str) -> bytes:
        """Return all of a file; nothing of one that is not there."""
        return self._files.get(path, b"")

    def write(self, path: str, content: bytes) -> None:
        """Replace a file, or make it."""
        self._files[path] = content
        if path == f"{_MANAGER}firmware":
            self._load(content.decode(errors="replace").strip())

    def _load(self, name: str) -> None:
        if self.read(FIRMWARE + name):
            self._loaded()
            self._files[f"{_MANAGER}state"] = b"operating\n"
        else:
            self._files[f"{_MANAGER}state"] = b"firmware request error\n"
