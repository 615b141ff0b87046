"""Progress of an installation: a line a step, the time it took, and the time left when that is known."""

from __future__ import annotations

import io

import pytest

from tools.installation.progress import Progress, read_durations, write_durations

PLAN = ("uv", "locked", "torch")


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress_of(stream, remembered):
    clock = Clock()
    return Progress(PLAN, stream, dict(remembered), clock), clock


def test_a_step_is_one_line_with_its_time():
    progress, clock = progress_of(io.StringIO(), {})
    for key, seconds in zip(PLAN, (2.04, 75, 10), strict=True):
        with progress.step(key, f"title of {key}") as line:
            clock.now += seconds
            line.tick()
            line.detail = "the CPU build" if key == "torch" else ""
    assert progress.stream.getvalue().splitlines() == [
        "install: 1/3 title of uv ... 2.0 s",
        "install: 2/3 title of locked ... 1 min 15 s",
        "install: 3/3 title of torch ... the CPU build, 10 s",
    ]
    assert progress.durations_s == pytest.approx({"uv": 2.04, "locked": 75, "torch": 10})


def test_the_time_left_is_known_from_the_last_time():
    progress, clock = progress_of(io.StringIO(), {"uv": 3, "locked": 40, "torch": 20})
    with progress.step("uv", "uv"):
        clock.now += 2
    with progress.step("locked", "locked"):
        clock.now += 50
    assert progress.stream.getvalue().splitlines() == [
        "install: 1/3 uv ... 2.0 s, about 1 min 0 s left",
        "install: 2/3 locked ... 50 s, about 20 s left",
    ]


def test_a_terminal_sees_the_time_pass():
    progress, clock = progress_of(Terminal(), {"uv": 3, "locked": 40, "torch": 20})
    with progress.step("uv", "uv") as line:
        clock.now += 1
        line.tick()
        clock.now += 4
        line.tick()  # longer than the last time: nobody knows
    assert progress.stream.getvalue().split("\r\x1b[K") == [
        "install: 1/3 uv ... ",
        "install: 1/3 uv ... 1.0 s, about 1 min 2 s left",
        "install: 1/3 uv ... 5.0 s",
        "install: 1/3 uv ... 5.0 s, about 1 min 0 s left\n",
    ]


def test_a_step_that_fails_says_so_and_is_not_remembered():
    progress, _ = progress_of(io.StringIO(), {})
    with pytest.raises(OSError, match="disk"), progress.step("uv", "uv"):
        raise OSError("disk")
    assert progress.stream.getvalue() == "install: 1/3 uv ... not done\n"
    assert progress.durations_s == {}


def test_durations_are_remembered_between_installations(tmp_path):
    path = tmp_path / "cache" / "seconds.json"
    assert read_durations(path) == {}
    write_durations(path, {"uv": 2.04, "torch": 10})
    assert read_durations(path) == {"uv": 2.0, "torch": 10}


@pytest.mark.parametrize("text", ["", "[1]", '{"uv": "soon"}', '{"uv": null}'])
def test_a_file_that_is_not_ours_is_no_news(tmp_path, text):
    path = tmp_path / "seconds.json"
    path.write_text(text)
    assert read_durations(path) == {}


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").touch()
    write_durations(tmp_path / "file" / "seconds.json", {"uv": 2})
