"""The files of a folder of Chakra traces, one a rank: found, decompressed, and read as nodes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from testbed.design.workloads.imports.chakra_json import read_json
from testbed.design.workloads.imports.chakra_wire import Node, read_nodes
from testbed.errors import WorkloadError

_FILE = re.compile(r"(?P<name>.*?)\.?(?P<rank>\d+)\.(?P<form>et|json)(\.(gz|bz2|xz|zst))?")
_COMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def is_trace_folder(path: str | Path) -> bool:
    """Return True for a folder, which is how traces are given."""
    return Path(path).is_dir()


def read_ranks(folder: Path) -> list[list[Node]]:
    """Return the nodes of each rank. Raises `WorkloadError` that names the folder or the file, `OSError`."""
    ranks = []
    for path in rank_files(folder):
        try:
            data = _decompressed(path.read_bytes())
            ranks.append(read_json(data.decode("utf-8")) if ".json" in path.suffixes else read_nodes(data))
        except (ValueError, OSError, EOFError, RecursionError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise WorkloadError(f"{path} is not a Chakra execution trace: {error}") from error
    return ranks


def rank_files(folder: Path) -> list[Path]:
    """Return the file of each rank in order. Raises `WorkloadError` unless there is one of each, of one name."""
    found = [(path, match) for path in sorted(folder.iterdir()) if (match := _FILE.fullmatch(path.name))]
    form = "et" if any(match["form"] == "et" for _, match in found) else "json"
    of_form = [(path, match) for path, match in found if match["form"] == form]
    files = {int(match["rank"]): path for path, match in of_form}
    names = {match["name"] for _, match in of_form}
    if not files or sorted(files) != list(range(len(files))) or len(names) > 1 or len(files) < len(of_form):
        if len(names) > 1:
            has = f"it has traces of {', '.join(sorted(names))}"
        else:
            has = f"it has ranks {sorted(int(match['rank']) for _, match in of_form)}"
        raise WorkloadError(f"{folder}: give one trace a rank, NAME.0.et, NAME.1.et and so on; {has}")
    return [files[rank] for rank in range(len(files))]


def _decompressed(data: bytes) -> bytes:
    if data.startswith(_ZSTANDARD):
        raise ValueError("it is compressed with Zstandard: decompress it with 'zstd -d' first")
    for magic, decompress in _COMPRESSED.items():
        if data.startswith(magic):
            return decompress(data)
    return data
