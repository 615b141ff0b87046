"""Building the wheel: a second copy of `lightning/__init__.py` stands beside the packages, as `lightning.py`."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

FIRST_LINE = "from __future__ import annotations\n"
SPARE = '__path__ = [__file__.removesuffix(".py")]\n'
"""Makes a module a package: its modules are those of the folder beside it."""


class BuildWithSpare(build_py):
    """Writes `lightning.py`, see docs/decisions/0032. A checkout (editable) shares its folder with nobody."""

    def run(self) -> None:
        """Build the packages, then write the copy."""
        super().run()
        if not self.editable_mode:
            text = Path("lightning/__init__.py").read_text(encoding="utf-8")
            if FIRST_LINE not in text:
                raise ValueError(
                    f"lightning/__init__.py has no line {FIRST_LINE!r}, behind which its copy says its path"
                )
            self.spare.write_text(text.replace(FIRST_LINE, FIRST_LINE + SPARE, 1), encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files built, this one too."""
        spare = [] if self.editable_mode else [str(self.spare)]
        return [*super().get_outputs(include_bytecode), *spare]

    @property
    def spare(self) -> Path:
        """Return where the copy goes."""
        return Path(self.build_lib) / "lightning.py"
