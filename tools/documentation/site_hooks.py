"""Hooks of mkdocs: pages that were generated, and examples that pages link to, become part of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "build" / "pages"
EXAMPLES = "examples"


def on_files(files: Any, config: Any) -> Any:
    """Add generated pages, and the examples, at the paths that pages expect them at."""
    sources = [(GENERATED, path) for path in sorted(GENERATED.rglob("*.md"))]
    sources += [(ROOT, path) for path in sorted((ROOT / EXAMPLES).rglob("*.ipynb"))]
    for base, path in sources:
        files.append(File.generated(config, path.relative_to(base).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  mkdocs names them
    """Return the page with links that leave `docs` led to where the site holds their targets."""
    return markdown.replace(f"](../../{EXAMPLES}/", f"](../{EXAMPLES}/")
