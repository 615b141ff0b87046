"""A built folder as it lies on disk: the datapath that its text describes, and its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import ports_of
from fpga.hdl.design import Design
from fpga.registers.origin import ORIGIN, Origin, read_origin
from fpga.registers.register_list import Streams
from fpga.registers.top import Top


class NotListed(ValueError):
    """A list of sources that names a file which is not in the folder, or is not there itself."""


@dataclass(frozen=True)
class Delivered:
    """The files of a built folder."""

    folder: Path
    origin: Origin

    @property
    def datapath(self) -> Datapath:
        """The datapath that the text describes."""
        return self.origin.checked.datapath

    def text(self, name: str) -> str:
        """Return a file; characters that no hardware language has become question marks. Raises NotListed."""
        path = self.folder / name
        if not path.is_file() or Path(name).name != name:
            raise NotListed(f"there is no file {name} in {self.folder}")
        return path.read_bytes().decode("utf-8", errors="replace").encode("ascii", "replace").decode()

    def sources(self, streams: Streams) -> dict[str, str]:
        """Return the sources of a top as its list names them, those of the datapath among them."""
        listed = self.text(f"{Top(self.datapath, streams).name}.f").split()
        return {name: self.text(name) for name in listed}

    def around(self, streams: Streams) -> dict[str, str]:
        """Return the sources of a top without the datapath itself."""
        own = f"{self.datapath.name}.sv"
        return {name: text for name, text in self.sources(streams).items() if name != own}

    @cached_property
    def core(self) -> Design:
        """The datapath with its blocks, without registers and streams."""
        tops = [Top(self.datapath, streams).name for streams in Streams]
        apart = {f"{top}{end}" for top in tops for end in (".sv", "_registers.v")}
        # Both lists must lead to the same datapath: what only one of them names is looked at, too.
        found = {**self.sources(Streams.AXI_STREAM), **self.sources(Streams.REGISTERS)}
        kept = tuple((name, text) for name, text in found.items() if name not in apart)
        return Design(self.datapath.name, kept, ports_of(self.datapath))

    def files(self) -> dict[str, str]:
        """Return every file below the folder with its SHA-256, by its path there; what simulators leave is not one."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            place = path.relative_to(self.folder)
            if path.is_file() and not {"__pycache__", "sim_build", ".pytest_cache"} & set(place.parts):
                found[place.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


def read_folder(folder: Path) -> Delivered:
    """Return a built folder. Raises ValueError when it is none, CountActionError when its text is wrong."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. Give the one that `countaction build FILE -o DIR` made."
        )
    return Delivered(folder, read_origin(folder))


__all__ = ["ORIGIN", "Delivered", "NotListed", "read_folder"]
