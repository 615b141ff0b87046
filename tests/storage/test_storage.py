"""The contract of the database, the same on SQLite and on PostgreSQL: transactions, schema, migrations, looking."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("alembic")
skip_without("sqlalchemy")

import sqlalchemy as sa

from testbed import database_file
from testbed.errors import StorageError
from testbed.storage import schema
from testbed.storage.address import choose_database, get_database_address, hide_password
from testbed.storage.database import (
    DATABASE_ERRORS,
    FIRST_REVISION,
    NETWORK_FILESYSTEMS,
    Database,
    check_is_local,
    find_filesystem_type,
)
from testbed.storage.owner import get_current_process, is_running
from testbed.storage.reading import find_hint, read_rows

KEPT = Path(__file__).parent / "data" / "laboratory.sqlite"
"""A file of the first revision: a run, two operations, an epoch, a discovery, a loss."""
OPERATION = {"id": "op1", "lab": "lab", "owner": "me", "started": "now", "state": "running"}


@pytest.fixture
def database(database_address):
    database = Database(database_address)
    yield database
    database.close()


def add(database, **values):
    with database.open_transaction() as connection:
        connection.execute(schema.operations.insert().values(**(OPERATION | values)))


def ids(address):
    return [
        row["id"]
        for row in read_rows(address, "select id from operations where lab = ? order by id", ("lab",))
    ]


def test_what_is_written_is_seen_by_whoever_looks(database):
    assert ids(database.address) == []
    add(database)
    assert ids(database.address) == ["op1"]
    assert database.commit_s > 0


def test_an_error_takes_all_of_a_transaction_back(database):
    with pytest.raises(RuntimeError), database.open_transaction() as connection:
        connection.execute(schema.operations.insert().values(OPERATION))
        raise RuntimeError
    assert ids(database.address) == []


def test_commits_are_durable(database):
    with database.open_reading() as connection:
        if connection.dialect.name == "sqlite":
            settings = [
                connection.exec_driver_sql(f"pragma {name}").scalar()
                for name in ("journal_mode", "synchronous")
            ]
            assert settings == ["wal", 2]
        else:
            assert connection.exec_driver_sql("show synchronous_commit").scalar() == "on"


def test_a_full_disk_takes_all_back_and_looking_works(tmp_path):
    database = Database(tmp_path / "lightbed.sqlite")
    add(database)
    with pytest.raises(DATABASE_ERRORS) as raised, database.open_transaction() as connection:
        connection.exec_driver_sql("pragma max_page_count = 1")
        connection.execute(
            schema.operations.insert().values(OPERATION | {"id": "op2", "owner": "x" * 100_000})
        )
    assert find_hint(raised.value) == "free disk space, or choose another directory for runs (--runs-dir)"
    assert ids(database.address) == ["op1"]
    database.close()
    add(database, id="op3")
    assert ids(database.address) == ["op1", "op3"]
    database.close()


def test_a_step_needs_its_operation(database):
    lonely = dict.fromkeys(("switch", "address", "kind", "before", "after", "intent_at"), "x")
    with pytest.raises(DATABASE_ERRORS), database.open_transaction() as connection:
        connection.execute(schema.steps.insert().values(operation="none", ordinal=0, **lonely))


def test_writers_follow_one_another_and_lose_nothing(database):
    """Each reads the newest number and writes the next one, as epochs and tokens are counted."""
    add(database, started="0")

    def count() -> None:
        mine = Database(database.address)
        for _ in range(5):
            with mine.open_transaction() as connection:
                seen = connection.execute(sa.select(schema.operations.c.started)).scalar_one()
                connection.execute(schema.operations.update().values(started=str(int(seen) + 1)))
        mine.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_rows(database.address, "select started from operations") == [{"started": "20"}]


@pytest.mark.long
def test_a_transaction_begins_when_the_one_before_it_has_ended(database):
    """One that reads at once, and writes when another has written meanwhile, would be refused by SQLite."""
    add(database, started="0")
    has_read, errors = threading.Event(), []

    def count() -> None:
        mine = Database(database.address)
        try:
            with mine.open_transaction() as connection:
                seen = connection.execute(sa.select(schema.operations.c.started)).scalar_one()
                has_read.set()
                connection.execute(schema.operations.update().values(started=f"{seen}, 2"))
        except DATABASE_ERRORS as error:
            errors.append(error)
        mine.close()

    second = threading.Thread(target=count)
    with database.open_transaction() as connection:
        second.start()
        assert not has_read.wait(0.5), "it has begun in the middle of another"
        connection.execute(schema.operations.update().values(started="1"))
    second.join()
    assert errors == []
    assert read_rows(database.address, "select started from operations") == [{"started": "1, 2"}]


def test_several_may_create_the_database_at_once(database_address):
    failed = []

    def create(start: threading.Barrier) -> None:
        mine = Database(database_address)
        start.wait()
        try:
            mine.prepare()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            failed.append(error)
        mine.close()

    start = threading.Barrier(4)
    threads = [threading.Thread(target=create, args=(start,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert read_rows(database_address, "select version_num from alembic_version") == [
        {"version_num": schema.REVISION}
    ]


def test_revisions_stand_in_one_line_up_to_that_of_the_code():
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "testbed.storage:migrations")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [schema.REVISION]
    assert [each.revision for each in script.walk_revisions()][-1] == FIRST_REVISION


@pytest.fixture
def kept(tmp_path):
    return Path(shutil.copy(KEPT, tmp_path / "lightbed.sqlite"))


COUNTS = {"runs": 1, "environment": 4, "topologies": 2, "circuits": 3, "phases": 1, "operations": 2, "steps": 2,
          "intents": 1, "discoveries": 1, "losses": 1}  # fmt: skip


def counted(address):
    return {name: read_rows(address, f"select count(*) as n from {name}")[0]["n"] for name in COUNTS}


def test_a_file_of_the_first_revision_is_migrated_to_the_schema_of_the_code_when_it_is_written(kept):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    before = counted(kept)
    database = Database(kept)
    add(database, id="op2")
    with database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    database.close()
    assert found == []
    assert before == COUNTS
    assert counted(kept) == COUNTS | {"operations": 3}


def test_a_file_is_left_as_it_is_by_looking(kept):
    from testbed.measure.results.store import RunStore
    from testbed.operate.intent import load_intents

    was = kept.read_bytes()
    stored = RunStore(kept.parent).load_run("last")
    (intent,) = load_intents(kept.parent, "testbed12")
    assert (stored.lab.name, list(stored.circuits), len(intent.wiring.links)) == (
        "t4",
        ["ring", "other"],
        48,
    )
    assert kept.read_bytes() == was


@pytest.mark.parametrize("revision", ["0004", None])
def test_a_file_from_before_the_first_release_is_refused(kept, revision):
    with contextlib.closing(sqlite3.connect(kept)) as connection, connection:
        if revision:
            connection.execute("update alembic_version set version_num = ?", (revision,))
        else:
            connection.execute("drop table alembic_version")
    with pytest.raises(StorageError, match="from before its first release; choose another"):
        Database(kept).prepare()
    assert counted(kept) == COUNTS


def test_a_migration_that_fails_leaves_the_file_as_it_was(kept, monkeypatch):
    monkeypatch.setattr("testbed.storage.database.FIRST_REVISION", "1000")
    with contextlib.closing(sqlite3.connect(kept)) as connection, connection:
        connection.execute("update alembic_version set version_num = '1000'")
    monkeypatch.setattr(
        "testbed.storage.database.migrate",
        lambda connection: connection.exec_driver_sql("create table x (y)") and 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        Database(kept).prepare()
    assert read_rows(kept, "select name from sqlite_master where name = 'x'") == []
    assert read_rows(kept, "select version_num from alembic_version") == [{"version_num": "1000"}]
    assert counted(kept) == COUNTS


def test_a_database_of_a_later_release_is_refused(database):
    database.prepare()
    with database.open_transaction() as connection:
        connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    later = Database(database.address, keep_open=False)
    with pytest.raises(StorageError, match=r"written by a later release of lightbed \(revision 9999"):
        later.prepare()


def reserve(connection, lease, starts_s, ends_s, part="host:a"):
    connection.execute(
        schema.reservations.insert().values(
            lease=lease, part=part, lab="lab", starts_s=starts_s, ends_s=ends_s
        )
    )


@pytest.mark.process
@pytest.mark.socket
def test_the_server_itself_refuses_reservations_that_overlap(postgresql):
    database = Database(postgresql)
    with database.open_transaction() as connection:
        connection.exec_driver_sql("alter table reservations drop constraint reservations_lease_fkey")
        reserve(connection, "one", 0, 100)
        reserve(connection, "two", 100, 200)
        reserve(connection, "three", 50, 150, part="host:b")
    with (
        pytest.raises(sa.exc.IntegrityError, match="reservations_do_not_overlap"),
        database.open_transaction() as connection,
    ):
        reserve(connection, "four", 199, 300)
    database.close()


def test_a_file_that_another_program_holds_is_told_with_what_to_do(tmp_path):
    database = Database(tmp_path / "lightbed.sqlite", busy_timeout_s=0.01)
    add(database)
    other = sqlite3.connect(tmp_path / "lightbed.sqlite", isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(DATABASE_ERRORS) as raised:
        add(database, id="op2")
    assert "another program writes to it" in find_hint(raised.value)
    assert ids(database.address) == ["op1"], "looking still works"
    other.close()
    database.close()


def test_a_process_of_another_machine_counts_as_running_and_one_of_an_earlier_boot_does_not():
    number, birth, machine = get_current_process().split(" ")
    assert is_running(get_current_process())
    assert is_running(f"{number} another-boot/1 elsewhere")
    assert not is_running(f"{number} another-boot/1 {machine}")
    assert not is_running(f"{number} another-boot/1")
    assert is_running(f"{number} {birth}"), "as releases before wrote it"


CLOSE_IT = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
print(other.execute("select count(*) from operations").fetchone()[0])
"""


@pytest.mark.process
@pytest.mark.parametrize("copied", [False, True], ids=["beside the writer", "as a copy"])
def test_looking_takes_no_lock_of_ours_away(tmp_path, monkeypatch, copied):
    """A program that closes the database removes its log, unless somebody else is seen to use it."""
    path = tmp_path / "lightbed.sqlite"
    database = Database(path)
    add(database)
    if copied:
        monkeypatch.setattr(database_file, "_open_shared", refused)
    assert ids(path) == ["op1"]
    log = Path(f"{path}-wal").stat().st_ino
    done = subprocess.run([sys.executable, "-c", CLOSE_IT, path], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert Path(f"{path}-wal").stat().st_ino == log
    add(database, id="op2")
    database.close()
    assert sqlite3.connect(path).execute("select id from operations order by id").fetchall() == [
        ("op1",),
        ("op2",),
    ]


def refused(_path):
    raise sqlite3.OperationalError("unable to open database file")


MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 0:35 / /home rw shared:9 - nfs4 server:/home rw,vers=4.2
41 40 254:1 / /home/local\\040disk rw - xfs /dev/vdb rw
42 21 0:44 / /mnt/far rw - fuse.sshfs user@far: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a/runs", "nfs4"),
        ("/home/local disk/runs", "xfs"),
        ("/homes", "ext4"),
        ("/mnt/far", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_mount_nearest_to_it(path, kind):
    assert find_filesystem_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", sorted(NETWORK_FILESYSTEMS))
def test_a_network_file_system_is_refused_before_anything_is_made(tmp_path, monkeypatch, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / {tmp_path.resolve()} rw - {kind} far:/x rw\n"
    )
    monkeypatch.setattr("testbed.storage.database._MOUNTS_FILE", mounts)
    with pytest.raises(StorageError, match=rf"network file system \({kind}\).*--runs-dir.*--database"):
        Database(tmp_path / "runs" / "lightbed.sqlite").prepare()
    assert not (tmp_path / "runs" / "lightbed.sqlite").exists()
    check_is_local(Path("/elsewhere/lightbed.sqlite"))


def test_a_chosen_server_stands_for_every_directory_of_runs():
    url = "postgresql+psycopg://lab:secret@db1/lightbed"
    assert get_database_address("runs") == Path("runs/lightbed.sqlite")
    choose_database(url)
    assert get_database_address("runs") == url
    choose_database("")
    assert get_database_address("runs") == Path("runs/lightbed.sqlite")
    assert "secret" not in hide_password(url)


@pytest.mark.parametrize("url", ["sqlite:///x", "postgresql://h/x", "mysql://u:secret@h/x", "nonsense"])
def test_any_other_address_is_refused_without_its_password(url):
    with pytest.raises(StorageError, match="is not the address of a PostgreSQL server") as raised:
        choose_database(url)
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there_is_told_with_what_to_do(tmp_path):
    database = Database(f"postgresql+psycopg://nobody@/none?host={tmp_path}")
    with pytest.raises(DATABASE_ERRORS) as raised:
        database.prepare()
    assert find_hint(raised.value) == "start the server, or correct its address (--database)"
    database.close()
