"""Generator of the pages from commands and docstrings: `python -m tools.documentation FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.documentation.command_pages import make_command_pages
from tools.documentation.interface import make_module_pages


def main(folder: Path) -> None:
    """Write every generated page below `folder`, by its path in the documentation."""
    for path, text in {**make_command_pages(), **make_module_pages()}.items():
        page = folder / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
