"""Looking at a lab needs no right to write: a disk that is full, one that is read-only, a machine that is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).resolve().parents[2]

DISKS = {
    "full": """
        mount -t tmpfs -o size=1m tmpfs disk && cp -a kept/. disk
        head -c 2M /dev/zero > disk/rest 2>/dev/null || true
        if (echo more > disk/more) 2>/dev/null; then exit 9; fi
    """,
    "read-only": """
        mount -t tmpfs -o size=1m tmpfs disk && cp -a kept/. disk && mount -o remount,ro disk
        if touch disk/more 2>/dev/null; then exit 9; fi
    """,
    "read-only machine": """
        cp -a kept/. disk && mount --bind / / && cd "$PWD"
        awk '{print $5}' /proc/self/mountinfo | sort -u | grep -v -e ^/proc -e ^/sys -e ^/dev/ |
            while read -r mounted; do mount -o remount,bind,ro "$mounted" || ! mountpoint -q "$mounted"; done
        if touch disk/more 2>/dev/null || touch /tmp/more 2>/dev/null; then exit 9; fi
    """,
}
"""Commands in a mount namespace that make `disk`, with what is `kept`, a place where nothing can be written.

A mount may vanish between the list and the remount: another test has removed a network namespace.
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Provide a directory with `lab.yaml` of a lab of four hosts, and `kept/runs` with its applied topology."""
    place = tmp_path_factory.mktemp("place")
    (place / "disk").mkdir()
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:3], python=python) for host in lab.hosts[:4])
    lab = replace(lab, name=f"disk-{os.getpid()}", hosts=hosts, ssh_key=place / "key")
    with start_lab(lab, hosts="kernel", may_move=True) as up:
        (place / "lab.yaml").write_text(render_lab(up.lab))
        done = command(place, place / "kept", "apply", "lab.yaml", "--simplex")
        assert done.returncode == 0, done.stdout + done.stderr
        yield place


def command(place: Path, disk: Path, *words: str, prepare: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with all that is its own on `disk`."""
    own = {name: str(disk) for name in ("HOME", "TMPDIR", "LIGHTBED_LOCK_DIR")}
    own["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # of machine code
    script = f'set -e\nmount --make-rprivate /\n{prepare}\nexec "$@"'
    testbed = [sys.executable, "-m", "testbed.cli", *words]
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "testbed", *testbed],
        cwd=place,
        env=os.environ | own | {"LIGHTBED_RUNS": str(disk / "runs"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


LOOKS = [
    pytest.param(("plan", "lab.yaml"), marks=pytest.mark.long),
    pytest.param(("verify", "lab.yaml"), marks=pytest.mark.long),
    ("path", "a", "c", "--lab", "lab.yaml"),
    pytest.param(("repair", "lab.yaml"), marks=pytest.mark.long),
    pytest.param(("drift", "lab.yaml"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("words", LOOKS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    "disk", ["full", *(pytest.param(disk, marks=pytest.mark.long) for disk in DISKS if disk != "full")]
)
def test_looking_works_where_nothing_can_be_written(place, disk, words):
    done = command(place, place / "disk", *words, prepare=DISKS[disk])
    shutil.rmtree(place / "disk" / "runs", ignore_errors=True)
    assert (done.returncode, done.stderr) == (0, "")
    heading = done.stdout.splitlines()[0]
    assert "epoch 1 (verified, " in heading
    assert heading.endswith("): --simplex")
    assert ("could not be stored for later comparison" in done.stdout) == (words[0] == "drift")


@pytest.mark.parametrize(
    ("disk", "hint"),
    [
        ("full", "free disk space"),
        pytest.param("read-only", "make it writable", marks=pytest.mark.long),
        pytest.param("read-only machine", "make it writable", marks=pytest.mark.long),
    ],
)
def test_applying_is_refused_before_anything_is_sent(place, disk, hint):
    done = command(place, place / "disk", "apply", "lab.yaml", prepare=DISKS[disk])
    shutil.rmtree(place / "disk" / "runs", ignore_errors=True)
    assert done.returncode == 1
    assert "error: the journal" in done.stderr
    assert hint in done.stderr
    again = command(place, place / "kept", "verify", "lab.yaml")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "everything is as planned")
