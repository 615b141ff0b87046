"""Devices at the same time, each in a thread that nobody waits for once Ctrl-C was given for the second time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(items: Mapping[str, Item], work: Callable[[Item], Result]) -> dict[str, Result]:
    """Do something for all items at once; a single one needs no thread. Raises the first error, when all have ended."""
    if len(items) == 1:
        return {name: work(item) for name, item in items.items()}
    results: dict[str, Result] = {}
    errors: dict[str, BaseException] = {}

    def run(name: str, item: Item) -> None:
        try:
            results[name] = work(item)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors[name] = error

    threads = [
        threading.Thread(target=copy_context().run, args=(run, *one), daemon=True) for one in items.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in items:
        if name in errors:
            raise errors[name]
    return {name: results[name] for name in items}
