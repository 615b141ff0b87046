"""Files that a user names: each kind of name is written as what it is, or refused with a reason."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from lightbed.output_file import check_output, open_output, write_output

AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: makes a device node, or a file of somebody else"
)
NOBODY = 65534


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    write_output(tmp_path / "written", "text\n")
    (tmp_path / "other").touch()

    assert (tmp_path / "written").read_text() == "text\n"
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_stays_as_it_was_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    path.chmod(0o640)

    with pytest.raises(KeyboardInterrupt), open_output(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt

    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("plan.json", "old")]
    write_output(path, b"new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")

    write_output(tmp_path / "link", "new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "new"


def test_a_device_stays_a_device(null_device):
    write_output(null_device, "gone")

    assert null_device.stat().st_rdev == os.makedev(1, 3)


def test_a_pipe_is_written_to(tmp_path):
    path, heard = tmp_path / "pipe", []
    os.mkfifo(path)
    reading = threading.Thread(target=lambda: heard.append(path.read_text()))
    reading.start()

    write_output(path, "through")

    reading.join()
    assert heard == ["through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("name", ["descriptor", "link"])
def test_a_descriptor_is_written_to_where_it_stands(tmp_path, name):
    """`-o /dev/stdout >> FILE`: what is there stays, and what follows comes behind it."""
    with (tmp_path / "of-the-shell").open("wb") as file:
        file.write(b"before, ")
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        if name == "link":
            (tmp_path / "link").symlink_to(path)
            path = tmp_path / "link"
        write_output(path, "through")
        file.seek(0, os.SEEK_END)
        file.write(b", after")
        assert os.fstat(file.fileno()).st_nlink == 1
    assert (tmp_path / "of-the-shell").read_text() == "before, through, after"


def test_a_dash_is_standard_output(capsysbinary):
    write_output("-", "text")
    assert capsysbinary.readouterr().out == b"text"


def make_folder(path):
    path.mkdir()


def make_dangling_link(path):
    path.symlink_to("nowhere")


def make_read_only(path):
    path.write_text("kept")
    path.chmod(0o444)


def make_file_of_somebody_else(path):
    path.write_text("kept")
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_folder, "it is a folder"),
        (make_dangling_link, "it is a link to nowhere, which does not exist"),
        (make_read_only, "it is read-only"),
        pytest.param(make_file_of_somebody_else, "it belongs to ", marks=AS_ROOT),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_reason_and_stays(tmp_path, make, reason):
    path = tmp_path / "named"
    make(path)
    before = path.lstat()

    for refuse in (check_output, lambda path: write_output(path, "x")):
        with pytest.raises(OSError, match=reason):
            refuse(path)

    assert path.lstat() == before
    assert [each.name for each in tmp_path.iterdir()] == ["named"]


def test_a_disk_is_refused(make_node):
    disk = make_node("disk", stat.S_IFBLK, 7, 0)
    with pytest.raises(OSError, match="it is a disk"):
        write_output(disk, "x")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="folder"):
        check_output(tmp_path / "none" / "file")
