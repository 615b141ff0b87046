"""Functions in machine code where numba is installed, and as they stand where it is not.

Import modules that use this inside functions only: numba takes its time.

Translations are kept (`lightbed.machine_code`) under a digest of what they were made from: another checkout of the
same sources, or a new environment, finds them there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lightbed.machine_code import digest_of, make_folder

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""True where functions run as machine code. numba's own variable says no where jobs are small."""


def compile_function(
    function: Function,
    *,
    signatures: Sequence[str] = (),
    sources: Sequence[Path] | None = None,
    **options: Any,
) -> Function:
    """Return the function in machine code, with these options of numba; itself where numba is not installed.

    It is translated at its first call, or now for `signatures`, if there are any. Translations are kept on disk for
    the next process, where there is a folder for them, until one of `sources` changes: modules, or folders of them, by
    default the folder of the function. With empty `sources` nothing is kept.
    """
    if not AVAILABLE or numba.config.DISABLE_JIT:
        return function
    options = {"error_model": "numpy", **options}
    kept = None if sources is not None and not sources else _keep(function, sources, options)
    made = kept or numba.njit(**options)(function)
    for signature in signatures:
        made.compile(signature)
    if signatures:
        made.disable_compile()
    return made  # type: ignore[no-any-return]


def is_kept(function: Any) -> bool:
    """Return True if a translation of a compiled function is on disk; also where numba cannot tell."""
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load = getattr(file, "_load_index", None)
    return load is None or bool(load())


def _keep(function: Any, sources: Sequence[Path] | None, options: dict[str, Any]) -> Any:
    """Return the function with a place on disk; None where there is no folder for it.

    numba looks at the function's own file alone, by its time, and has no public way to say more. Where numba has
    changed inside, nothing is kept, rather than what may be old.
    """
    own = Path(function.__code__.co_filename)
    files = [own.parent] if sources is None else list(sources)
    key = hashlib.sha256(repr((function.__module__, sorted(options.items()), numba.__version__)).encode())
    try:
        for digest in (*map(digest_of, files), digest_of(own), digest_of(Path(__file__))):
            key.update(digest)
        made = numba.njit(cache=True, **options)(function)
        folder = make_folder(f"{own.stem}-{key.hexdigest()[:24]}")
        kept = made._cache  # noqa: SLF001
        kept._impl.locator.get_cache_path = lambda: str(folder)  # noqa: SLF001
        kept._cache_path = str(folder)  # noqa: SLF001
        kept._cache_file = type(kept._cache_file)(str(folder), kept._impl.filename_base, key.hexdigest())  # noqa: SLF001
    except (RuntimeError, OSError, AttributeError, TypeError):
        return None
    return made
