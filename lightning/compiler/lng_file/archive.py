"""The `.lng` file: a zip of `model.json`, arrays as `.npy` without pickle, and `SHA256SUMS` over all of them.

Equal models give equal bytes. What is read is bounded, checked against the sums, and then against itself; whatever is
wrong with a file is a `ModelFileError`. The sums find damage; they do not prove who made the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightbed.output_file import write_output
from lightning.compiler.lng_file.check import check_model
from lightning.compiler.lng_file.document import from_document, to_document
from lightning.compiler.model import CompiledModel
from lightning.errors import LightningError, ModelFileError

FORMAT = 1
"""Of `model.json`; a later one is refused."""
MAX_BYTES = 2**30
"""Of all members together, unpacked: a file may declare anything."""
MAX_MEMBERS = 20_000
_SUMS = "SHA256SUMS"
_DOCUMENT = "model.json"
_PROGRAM = "program.json"
_AGAIN = "Compile the model again: lightning compile NETWORK -o MODEL.lng"
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError,
    ArithmeticError, RuntimeError, MemoryError, LightningError,
)  # fmt: skip
"""What reading bytes that somebody has changed may raise: in the zip, in JSON, in arrays, in what they say."""


class _TooLarge(ValueError):
    """A file declares more than anybody would want to read."""


def save_model(model: CompiledModel, path: str | Path) -> None:
    """Write a `.lng` file. Raises `ModelFileError` where it cannot be written."""
    try:
        write_output(path, packed(model))
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be written ({error.strerror})", hint="Give another path"
        ) from error


def load_model(path: str | Path) -> CompiledModel:
    """Read a `.lng` file. Raises `ModelFileError` for one that is none, damaged, too large, or of a later version."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror})", hint="Check the path") from error
    return unpacked(content, str(path))


def model_hash(model: CompiledModel) -> str:
    """Return the identity of a model: SHA-256 over the sums of all it consists of, in hexadecimal.

    The count-action program is left out: it follows from the rest, and not every environment can make it.
    """
    return hashlib.sha256(_sums(_members(model)).encode()).hexdigest()


def packed(model: CompiledModel) -> bytes:
    """Return the bytes of a `.lng` file."""
    members = _members(model) | _program_members(model)
    members[_SUMS] = _sums(members).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(members.items()):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # otherwise that of this machine
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, 6)
    return buffer.getvalue()


def unpacked(content: bytes, name: str = "the model") -> CompiledModel:
    """Return the model in the bytes of a `.lng` file; `name` is for messages. Raises `ModelFileError`."""
    try:
        members = _read(content)
        document = json.loads(members[_DOCUMENT])
        _check_format(document, name)
        _check_sums(members)
        model = from_document(document, _arrays(members))
        check_model(model)
    except ModelFileError:
        raise
    except _TooLarge as error:
        raise ModelFileError(
            f"{name} is too large: {error}", hint="Ask who made it; no model needs that"
        ) from error
    except _DAMAGE as error:
        why = "" if isinstance(error, zipfile.BadZipFile) else f" ({error})"  # "not a zip file" helps nobody
        raise ModelFileError(f"{name} is not a .lng file, or is damaged{why}", hint=_AGAIN) from error
    return model


def _members(model: CompiledModel) -> dict[str, bytes]:
    document, arrays = to_document(model)
    text = json.dumps({"format": FORMAT, **document}, indent=1, sort_keys=True, allow_nan=False)
    return {_DOCUMENT: text.encode(), **{f"{name}.npy": _npy(values) for name, values in arrays.items()}}


def _program_members(model: CompiledModel) -> dict[str, bytes]:
    """Return the count-action program, where the datapath can carry the model and the language is installed."""
    from lightning.compiler.datapath.program import program_of

    try:
        return {_PROGRAM: program_of(model).to_json().encode()}
    except (LightningError, ImportError):
        return {}


def _npy(values: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values, order="C"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _sums(members: Mapping[str, bytes]) -> str:
    """Return the sums as `sha256sum` prints them."""
    return "".join(f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))


def _read(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        listed = archive.infolist()
        if len(listed) > MAX_MEMBERS or sum(each.file_size for each in listed) > MAX_BYTES:
            raise _TooLarge(f"it declares more than {MAX_MEMBERS} members, or {MAX_BYTES} bytes unpacked")
        if len({each.filename for each in listed}) < len(listed):
            raise ValueError("two members have one name")
        return {each.filename: _member(archive, each) for each in listed}


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Never more than is declared, whatever the packed bytes would become."""
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"{member.filename} is packed in a way that is not used here")
    with archive.open(member) as opened:
        found = opened.read(member.file_size)
    if len(found) != member.file_size:
        raise ValueError(f"{member.filename} is shorter than it should be")
    return found


def _check_format(document: Any, name: str) -> None:
    number = document["format"]
    if type(number) is not int or number < 1:
        raise ValueError(f"format {number!r}")
    if number > FORMAT:
        made = document["origin"]["toolkit"]
        raise ModelFileError(
            f"{name} has format {number}, written by lightbed {made}; this version reads up to {FORMAT}",
            hint="install a newer lightbed",
        )


def _check_sums(members: Mapping[str, bytes]) -> None:
    held = {name: content for name, content in members.items() if name != _SUMS}
    if members[_SUMS].decode("ascii") != _sums(held):
        raise ValueError("the contents are not those of SHA256SUMS")


def _arrays(members: Mapping[str, bytes]) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removesuffix(".npy"): _array(content)
        for name, content in members.items()
        if name.endswith(".npy")
    }


def _array(content: bytes) -> npt.NDArray[Any]:
    """Return an array of numbers, as large as its bytes: a header may declare anything."""
    buffer = io.BytesIO(content)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError("an array of a version that is not used here")
    shape, by_columns, kind = np.lib.format.read_array_header_1_0(buffer)
    if by_columns or kind.kind not in "iufb":
        raise ValueError(f"an array of {kind} that is not used here")
    return np.frombuffer(content, kind, offset=buffer.tell()).reshape(shape).copy()
