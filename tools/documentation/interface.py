"""The public interface: packages whose `__all__` other projects may rely on, and pages of their docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

PUBLIC = {
    "ocs_drivers": "optical switches and patch panels",
    "ocs_drivers.errors": "errors of optical switches",
    "fpga": "count-action datapaths: programs, buses, load and run",
    "fpga.count_action": "the count-action language",
    "fpga.photonic_mac": "the photonic multiply-accumulate datapath",
    "lightning": "the photonic kit: configuration, control, computing",
    "lightning.errors": "errors of photonic inference",
    "lightning.kit.calibration": "calibrations: measuring, storing, checking",
    "lightning.networks": "trained networks: import and description",
    "lightning.compiler": "networks to programs",
    "lightning.execution": "programs at four fidelities",
    "lightning.evaluation": "accuracy, sensitivity, comparison",
    "lightning.training": "training with noise",
    "lightning.serving": "inference over HTTP and UDP",
    "lightning.costs": "latency and energy",
    "testbed": "a lab as a Python object, through its file or a service",
    "testbed.errors": "errors of the testbed",
    "testbed.offload": "input pipelines that run partly on other hosts",
    "testbed.design.matching": "heaviest matchings",
    "testbed.design.repair": "plans for lost fibres",
    "testbed.design.search": "joint search for strategy and topology",
    "testbed.design.workloads.catalogue": "models by name",
    "testbed.design.workloads.imports": "models from files and modules",
    "testbed.design.workloads.iteration": "one iteration: task graph and traffic",
    "testbed.design.workloads.strategies": "parallelisation strategies",
    "lightbed.errors": "the root of all errors",
}
"""Public packages, each with a description. Everything else may change without notice."""


def list_exports(package: str) -> list[str]:
    """Return the public names of a package, sorted: its `__all__`, or without it all names defined there."""
    module = import_module(package)
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == package]
    return sorted((name for name in names if not name.startswith("_")), key=str.casefold)


def write_interface_table() -> Iterator[str]:
    """Yield the rows of the table in `docs/reference/api.md`."""
    yield "| package | what it is for | names |"
    yield "|---|---|---|"
    for package, line in PUBLIC.items():
        yield f"| `{package}` | {line} | {', '.join(f'`{name}`' for name in list_exports(package))} |"


def make_module_pages() -> dict[str, str]:
    """Return a page for each public package, by its path in the documentation; mkdocstrings fills the pages."""
    return {f"reference/modules/{package}.md": f"# `{package}`\n\n::: {package}\n" for package in PUBLIC} | {
        "reference/modules/README.md": "\n".join(_write_index())
    }


def _write_index() -> Iterator[str]:
    yield "# Modules\n"
    yield "Docstrings of the [public interface](../api.md).\n"
    for package, line in PUBLIC.items():
        yield f"- [`{package}`]({package}.md): {line}"
