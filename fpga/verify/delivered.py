"""A built folder on disk: the datapath of its source text, and its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import make_ports
from fpga.hdl.design import Design
from fpga.registers.origin import ORIGIN, Origin, read_origin
from fpga.registers.register_list import StreamAccess
from fpga.registers.top import Top


class MissingFileError(ValueError):
    """A missing file: a list of sources, or a file in it."""


@dataclass(frozen=True)
class DeliveredFolder:
    """The files of a built folder."""

    folder: Path
    origin: Origin

    @property
    def datapath(self) -> Datapath:
        """The datapath of the source text."""
        return self.origin.checked_datapath.datapath

    def read_text(self, name: str) -> str:
        """Return the text of a file, in ASCII, with question marks for other characters. Raise MissingFileError."""
        path = self.folder / name
        if not path.is_file() or Path(name).name != name:
            raise MissingFileError(f"there is no file {name} in {self.folder}")
        return path.read_bytes().decode("utf-8", errors="replace").encode("ascii", "replace").decode()

    def read_sources(self, stream_access: StreamAccess) -> dict[str, str]:
        """Return the files in the list of a top, including the files of the datapath. Raise MissingFileError."""
        names = self.read_text(f"{Top(self.datapath, stream_access).name}.f").split()
        return {name: self.read_text(name) for name in names}

    def read_sources_around_datapath(self, stream_access: StreamAccess) -> dict[str, str]:
        """Return the files of a top without the top module of the datapath."""
        datapath_file_name = f"{self.datapath.name}.sv"
        return {
            name: text
            for name, text in self.read_sources(stream_access).items()
            if name != datapath_file_name
        }

    @cached_property
    def core_design(self) -> Design:
        """The design of the datapath with its blocks, without registers and stream ports."""
        top_names = [Top(self.datapath, stream_access).name for stream_access in StreamAccess]
        excluded_names = {f"{top}{suffix}" for top in top_names for suffix in (".sv", "_registers.sv")}
        # The datapath must be the same in both tops, so files in either list are included.
        sources = {**self.read_sources(StreamAccess.AXI_STREAM), **self.read_sources(StreamAccess.REGISTERS)}
        core_sources = tuple((name, text) for name, text in sources.items() if name not in excluded_names)
        return Design(self.datapath.name, core_sources, make_ports(self.datapath))

    def hash_files(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by its path in the folder, except caches of simulators and pytest."""
        digests = {}
        for path in sorted(self.folder.rglob("*")):
            relative_path = path.relative_to(self.folder)
            if path.is_file() and not {"__pycache__", "sim_build", ".pytest_cache"} & set(
                relative_path.parts
            ):
                digests[relative_path.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests


def read_folder(folder: Path) -> DeliveredFolder:
    """Return a built folder. Raise ValueError if it is not one, and CountActionError if its text has errors."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. Give the one that `countaction build FILE -o DIR` made."
        )
    return DeliveredFolder(folder, read_origin(folder))


__all__ = ["ORIGIN", "DeliveredFolder", "MissingFileError", "read_folder"]
