"""Tokens that are kept as hashes, and an audit log in which a changed or removed line shows."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")

from testbed.service.access import ANONYMOUS
from testbed.service_errors import InvalidRequest, NotAuthenticated, NotFound
from testbed.storage.address import get_database_address
from testbed.storage.audit import AuditEntry, append_entry, read_audit, verify_audit_log

DAY = timedelta(days=1)


def test_a_token_says_who_it_is_of_until_it_expires_or_is_revoked(service):
    now = datetime(2026, 3, 1, tzinfo=UTC)
    token, text = service.tokens.create("ann", "operator", lifetime=DAY, labs=["l1"], now=now)

    who = service.tokens.identify(text, now + timedelta(hours=23))

    assert (who.name, who.role, who.labs) == ("ann", "operator", {"l1"})
    with pytest.raises(NotAuthenticated, match="expired"):
        service.tokens.identify(text, now + DAY)
    service.tokens.revoke(token.id)
    with pytest.raises(NotAuthenticated, match="revoked"):
        service.tokens.identify(text, now)


def test_the_database_holds_no_secret(service):
    _, text = service.tokens.create("ann", "operator", lifetime=DAY)
    service.database.close()

    files = [path.read_bytes() for path in service.runs_dir.glob("lightbed.sqlite*")]

    secret = text.rpartition("_")[2].encode()
    assert len(secret) == 64
    assert files
    assert not any(secret in held for held in files)


@pytest.mark.parametrize(
    "change", [lambda text: text[:-1] + "g", lambda text: text[:-1], lambda text: "", str.upper]
)
def test_what_is_nearly_a_token_is_none(service, change):
    _, text = service.tokens.create("ann", "operator", lifetime=DAY)

    with pytest.raises(NotAuthenticated) as raised:
        service.tokens.identify(change(text))

    assert text[22:60] not in str(raised.value)


def test_refusals_of_tokens(service):
    with pytest.raises(InvalidRequest, match="labs:read"):
        service.tokens.create("ann", "operator", lifetime=DAY, scopes=["everything"])
    with pytest.raises(NotFound):
        service.tokens.revoke("none")


@pytest.fixture
def log(service):
    """Five lines."""
    for number in range(5):
        with service.database.open_transaction() as connection:
            append_entry(connection, AuditEntry(ANONYMOUS, f"action {number}", "lab", "why"))
    service.database.close()

    def change(*statements):
        with sqlite3.connect(get_database_address(service.runs_dir)) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return change


def test_a_log_that_nobody_touched_is_whole(service, log):
    found = verify_audit_log(get_database_address(service.runs_dir))

    assert (found.broken_line, found.line_count, len(found.newest_hash)) == (None, 5, 64)


COLUMNS = ("at", "who", "role", "action", "lab", "why", "plan", "outcome", "previous", "hash")


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("line", [1, 3, 5])
def test_a_changed_line_shows(service, log, column, line):
    log(f"update audit set {column} = {column} || 'x' where number = {line}")

    assert verify_audit_log(get_database_address(service.runs_dir)).broken_line == line


@pytest.mark.parametrize("line", [1, 3, 5])
def test_a_removed_line_shows(service, log, line):
    log(f"delete from audit where number = {line}")

    assert verify_audit_log(get_database_address(service.runs_dir)).broken_line == line


def test_a_line_goes_on_after_a_removed_end(service, log):
    log("delete from audit where number = 5")
    with service.database.open_transaction() as connection:
        append_entry(connection, AuditEntry(ANONYMOUS, "later"))

    assert verify_audit_log(get_database_address(service.runs_dir)).broken_line == 5


def test_the_command_says_whole_or_which_line(service, log, capsys):
    from testbed.cli.app import run_app

    words = ["audit", "--verify", "--runs-dir", str(service.runs_dir)]
    assert run_app(words) == 0
    assert capsys.readouterr().out.startswith("intact: 5 lines")
    log("update audit set who = 'somebody' where number = 2")
    assert run_app(words) == 2
    assert capsys.readouterr().out.startswith("broken at line 2: the line was changed")


def test_a_log_whose_end_was_cut_with_its_count_shows_by_a_hash_that_was_kept(service, log, capsys):
    from testbed.cli.app import run_app

    kept = verify_audit_log(get_database_address(service.runs_dir)).newest_hash
    words = ["audit", "--verify", "--expect", kept, "--runs-dir", str(service.runs_dir)]
    assert run_app(words) == 0
    log("delete from audit where number = 5")
    log("update counters set value = 4 where name = 'audit'")
    assert verify_audit_log(get_database_address(service.runs_dir)).broken_line is None
    capsys.readouterr()
    assert run_app(words) == 2
    assert f"no line has the hash {kept}" in capsys.readouterr().out


def test_tokens_that_are_made_and_revoked_are_in_the_log(service):
    token, text = service.tokens.create("ann", "operator", lifetime=DAY, labs=["testbed12"])
    for _ in range(2):
        service.tokens.revoke(token.id)
    entries = read_audit(get_database_address(service.runs_dir))
    assert [(one["action"], one["outcome"]) for one in entries] == [
        ("create token", f"token {token.id} of ann, operator testbed12"),
        ("revoke token", f"token {token.id} of ann, operator testbed12"),
    ]
    assert text.rpartition("_")[2] not in str(entries)


def test_a_line_break_in_a_reason_makes_no_line(service, capsys):
    from testbed.cli.app import run_app

    with service.database.open_transaction() as connection:
        append_entry(connection, AuditEntry(ANONYMOUS, "stop", reason="a\n2 2026-11-28 root (admin) stop"))
    run_app(["audit", "--runs-dir", str(service.runs_dir)])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("a\\n2 2026-11-28 root (admin) stop")
    with pytest.raises(InvalidRequest):
        service.tokens.create("ann\n", "viewer", lifetime=DAY)


def test_the_database_is_for_its_owner_alone(service):
    service.tokens.create("ann", "viewer", lifetime=DAY)
    files = list(service.runs_dir.glob("lightbed.sqlite*"))
    assert files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
