"""Logs as JSON, one object per line: time, level, logger, message, and the bound run, operation, device and lease."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from testbed.log_context import SUBJECTS, get_log_subjects

LOG_VARIABLE = "LIGHTBED_LOG"
"""Environment variable: a file to append lines to, or `-` for standard error."""
LOGGER_NAMES = ("testbed", "ocs_drivers")


class JsonFormatter(logging.Formatter):
    """Formatter of records as JSON. Every line has all subjects as keys, null if not bound."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        subjects = get_log_subjects()
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{subject: subjects.get(subject) for subject in SUBJECTS},
        }
        if record.exc_info and record.exc_info[0] is not None:
            document["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
        return json.dumps(document, ensure_ascii=False)


def log_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Write the logs of the testbed and of its drivers to a stream; return the handler, for `remove_handler`."""
    return _add_handler(logging.StreamHandler(stream), level)


def _add_handler(handler: logging.Handler, level: int) -> logging.Handler:
    handler.setFormatter(JsonFormatter())
    handler.setLevel(level)
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(min(level, logger.level or level))
    return handler


def remove_handler(handler: logging.Handler) -> None:
    """Remove and close a handler that `log_to` returned."""
    for name in LOGGER_NAMES:
        logging.getLogger(name).removeHandler(handler)
    handler.close()


def log_from_environment() -> logging.Handler | None:
    """Write logs as `LIGHTBED_LOG` says, once per process. Raises `OSError` for a file that cannot be written."""
    destination = os.environ.get(LOG_VARIABLE, "")
    if not destination or any(
        handler.name == destination for handler in logging.getLogger(LOGGER_NAMES[0]).handlers
    ):
        return None
    handler = (
        logging.StreamHandler(sys.stderr)
        if destination == "-"
        else logging.FileHandler(destination, encoding="utf-8")
    )
    handler.set_name(destination)
    return _add_handler(handler, logging.INFO)
