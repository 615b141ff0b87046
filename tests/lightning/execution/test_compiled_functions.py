"""Machine code kept on disk, and when it is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import library

numba = library("numba")

from lightbed.machine_code import compute_digest, make_folder

machine_code = library("lightbed.compiled")
kernels = library("lightning.execution.kernels.compiled")


def twice(number):
    return number * 2


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """Provide the folder of translations, an empty one."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for function in (compute_digest, make_folder):
        function.cache_clear()
    yield tmp_path / "lightbed" / "machine-code"
    for function in (compute_digest, make_folder):
        function.cache_clear()


def translate(source: Path) -> str:
    """Return the name of the folder in which a translation from this source is kept."""
    compute_digest.cache_clear()
    made = machine_code.compile_function(twice, signatures=["int64(int64)"], sources=[source])
    assert made(21) == 42
    assert machine_code.is_cached_on_disk(made)
    return Path(made._cache.cache_path).name


def test_a_translation_is_found_by_the_content_of_its_sources(cache_folder, tmp_path):
    neighbour = tmp_path / "source" / "neighbour.py"
    neighbour.parent.mkdir()
    neighbour.write_text("A = 1\n")
    first = translate(neighbour.parent)
    os.utime(neighbour, (1, 1))
    assert translate(neighbour.parent) == first, "a date is no content"
    neighbour.write_text("A = 2\n")
    assert translate(neighbour.parent) != first
    assert len(list(cache_folder.iterdir())) == 2


def test_translations_that_nobody_uses_are_removed(cache_folder):
    old = cache_folder / "old"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    kept = translate(Path(__file__))
    assert [path.name for path in cache_folder.iterdir()] == [kept]


def test_nothing_is_kept_where_numba_has_changed_inside(cache_folder, monkeypatch):
    """Better slow to start than machine code of other sources."""
    njit = numba.njit
    cached = []

    def changed(**options):
        cached.append(options.get("cache", False))

        def decorate(function):
            made = njit(**options)(function)
            if options.get("cache"):
                del made._cache._impl
            return made

        return decorate

    monkeypatch.setattr("numba.njit", changed)
    assert kernels.compile_kernel("int64(int64)")(twice)(4) == 8
    assert cached == [True, False]


def test_nothing_is_kept_where_no_folder_can_be_written(cache_folder, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", __file__)
    made = kernels.compile_kernel("int64(int64)")(twice)
    assert made(4) == 8
    assert made._cache.cache_path is None


@pytest.mark.process
def test_kernels_can_be_imported_without_being_translated():
    code = "import numba; numba.config.DISABLE_JIT = 1; import lightning.execution.kernels.chain"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
