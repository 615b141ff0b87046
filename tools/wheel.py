"""Building the wheel: one line of ours stands at the top of site-packages, where Python reads it when it starts."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py


class BuildWithStartUp(build_py):
    """Puts `lightning/name_conflict.pth` at the top, see docs/decisions/0016. A checkout (editable) does without."""

    def run(self) -> None:
        """Build the packages, then copy the line next to them."""
        super().run()
        if not self.editable_mode:
            self.copy_file("lightning/name_conflict.pth", str(Path(self.build_lib) / "lightbed.pth"))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files built, this one too."""
        line = [] if self.editable_mode else [str(Path(self.build_lib) / "lightbed.pth")]
        return [*super().get_outputs(include_bytecode), *line]
