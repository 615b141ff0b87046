"""Machine code kept on disk, and when it is not."""

import subprocess
import sys

import pytest

numba = pytest.importorskip("numba")

from lightning.execution.kernels.compiled import compiled


def twice(number):
    return number * 2


def test_what_is_kept_depends_on_all_sources_next_to_it():
    made = compiled("int64(int64)")(twice)
    assert made(21) == 42
    stamps = str(made._cache._cache_file._source_stamp)
    assert "test_compiled_functions.py" in stamps
    assert "sums.py" in stamps


def test_nothing_is_kept_where_numba_has_changed_inside(monkeypatch):
    """Better slow to start than machine code of other sources."""
    kept = numba.njit
    asked = []

    def changed(**options):
        asked.append(options.get("cache", False))

        def decorate(function):
            made = kept(**options)(function)
            if options.get("cache"):
                del made._cache._cache_file._source_stamp
            return made

        return decorate

    monkeypatch.setattr(numba, "njit", changed)
    assert compiled("int64(int64)")(twice)(4) == 8
    assert asked == [True, False]


@pytest.mark.process
def test_kernels_can_be_imported_without_being_translated():
    code = "import numba; numba.config.DISABLE_JIT = 1; import lightning.execution.kernels.chain"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
