"""Results of nccl-tests from a file, text or JSON, as one table."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import ResultsError
from testbed.measure.nccl.json_output import parse_json
from testbed.measure.nccl.table import NcclTable, table_json, table_text
from testbed.measure.nccl.text_output import parse_text

__all__ = ["NcclTable", "import_nccl", "table_json", "table_text"]


def import_nccl(path: Path | str) -> NcclTable:
    """Return the table in a file, which is JSON when it begins with a brace and text otherwise.

    Raises `ResultsError`, naming file and line, when the file cannot be read or holds no row of results.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}. Give a file that nccl-tests wrote") from error
    parse = parse_json if text.lstrip().startswith("{") else parse_text
    return parse(text, str(path))
