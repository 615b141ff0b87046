"""Databases of tests: an SQLite file, and a PostgreSQL server in a directory of its own, as user postgres."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from needs import needs

_SERVERS = Path("/usr/lib/postgresql")
_SETTINGS = (
    "fsync=off",
    "full_page_writes=off",
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=16MB",
)


@pytest.fixture(scope="session")
@needs("process", "socket")
def postgresql_server(tmp_path_factory) -> Iterator[str]:
    """Provide the URL of a server up to the name of a database; it listens in its own directory alone."""
    folders = sorted(_SERVERS.glob("*/bin"))
    if not folders:
        pytest.skip("needs PostgreSQL: run `make install-test`")
    programs, place = folders[-1], Path("/tmp") / f"lightbed-pg-{uuid4().hex[:8]}"
    place.mkdir(mode=0o700)
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    if user:
        os.chown(place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)

    def run(program: str, *words: str) -> None:
        done = subprocess.run(
            [str(programs / program), "-D", str(place / "data"), *words],
            user=user, cwd=place, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    run("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
    settings = " ".join(f"-c {setting}" for setting in _SETTINGS)
    run("pg_ctl", "start", "-w", "-l", str(place / "log"), "-o", f"-k {place} {settings}")
    try:
        yield f"postgresql+psycopg://postgres@/NAME?host={place}"
    finally:
        run("pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def postgresql(postgresql_server) -> str:
    """Provide the URL of a database of its own."""
    psycopg = pytest.importorskip("psycopg")
    name = f"test_{uuid4().hex[:8]}"
    plain = postgresql_server.replace("+psycopg", "").replace("NAME", "postgres")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return postgresql_server.replace("NAME", name)


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.process, pytest.mark.socket])]
)
def database_address(request, tmp_path):
    """Provide an empty database, once on SQLite and once on PostgreSQL: the same contract holds on both."""
    if request.param == "sqlite":
        return tmp_path / "runs" / "lightbed.sqlite"
    return request.getfixturevalue("postgresql")
