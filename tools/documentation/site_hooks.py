"""Hooks of mkdocs that add generated pages, and examples to which pages link, to the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "build" / "pages"
EXAMPLES = "examples"


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and the example notebooks to the files of the site."""
    sources = [(GENERATED, path) for path in sorted(GENERATED.rglob("*.md"))]
    sources += [(ROOT, path) for path in sorted((ROOT / EXAMPLES).rglob("*.ipynb"))]
    for base, path in sources:
        files.append(File.generated(config, path.relative_to(base).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  mkdocs passes them by name
    """Return the page with links to `examples` outside `docs` changed to their place in the site."""
    return markdown.replace(f"](../../{EXAMPLES}/", f"](../{EXAMPLES}/")
