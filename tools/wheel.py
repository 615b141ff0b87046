"""Build step of the wheel: a copy of `lightning/__init__.py` is added beside the packages as `lightning.py`."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

FIRST_LINE = "from __future__ import annotations\n"
SPARE = '__path__ = [__file__.removesuffix(".py")]\n'
"""Line that makes the module a package, with the modules of the folder of the same name."""


class BuildWithSpare(build_py):
    """Build command that writes `lightning.py`, see docs/decisions/0032.

    An editable installation needs no copy, because no other package writes into a checkout.
    """

    def run(self) -> None:
        """Build the packages, then write the copy."""
        super().run()
        if not self.editable_mode:
            text = Path("lightning/__init__.py").read_text(encoding="utf-8")
            if FIRST_LINE not in text:
                raise ValueError(
                    f"lightning/__init__.py has no line {FIRST_LINE!r}, after which the copy sets its path"
                )
            self.spare.write_text(text.replace(FIRST_LINE, FIRST_LINE + SPARE, 1), encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all built files, including the copy."""
        spare = [] if self.editable_mode else [str(self.spare)]
        return [*super().get_outputs(include_bytecode), *spare]

    @property
    def spare(self) -> Path:
        """Path of the copy."""
        return Path(self.build_lib) / "lightning.py"
