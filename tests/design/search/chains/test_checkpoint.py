import json
from dataclasses import replace

import pytest

from testbed.design.search.chains import Rules, make_first_state, run_steps
from testbed.design.search.checkpoint import check, compute_fingerprint, read, write
from testbed.errors import SearchError


@pytest.fixture
def states(valley):
    return tuple(run_steps(valley, Rules(), make_first_state(valley, 1, number), 37) for number in range(2))


def test_what_was_written_is_read_and_goes_on_alike(tmp_path, valley, states):
    write(tmp_path / "c.json", "here", states)
    again = read(tmp_path / "c.json", "here", 2)
    assert again == states
    assert run_steps(valley, Rules(), again[1], 50) == run_steps(valley, Rules(), states[1], 50)
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_an_older_file_stays_when_the_new_one_cannot_be_written(tmp_path, states):
    folder = tmp_path / "not there"
    with pytest.raises(SearchError, match=r"cannot be written.*give another file"):
        write(folder / "c.json", "here", states)
    write(tmp_path / "c.json", "here", states)
    with pytest.raises(ValueError):
        write(tmp_path / "c.json", "here", [_with_cost(states[0], float("inf"))])
    assert read(tmp_path / "c.json", "here", 2) == states
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_an_older_file_is_whole_until_the_new_one_has_its_place(tmp_path, states):
    """A reader that has the old one open reads it to its end: it was not written over."""
    path = tmp_path / "c.json"
    write(path, "here", states)
    before = path.read_text()
    with path.open() as old:
        write(path, "there", states)
        assert old.read() == before
    assert read(path, "there", 2) == states


def _with_cost(state, cost):
    return replace(state, at=state.at._replace(cost_s=cost))


DAMAGE = {
    "cut": lambda text: text[: len(text) // 2],
    "no json": lambda text: "light",
    "a list": lambda text: "[]",
    "another format": lambda text: text.replace("lightbed-search/1", "lightbed-search/9"),
    "no chains": lambda text: json.dumps({**json.loads(text), "chains": None}),
    "chain lacks a field": lambda text: text.replace('"unchanged"', '"changed"'),
    "chance": lambda text: text.replace('"PCG64"', '"PCG63"'),
    "negative step": lambda text: text.replace('"step": 37', '"step": -37'),
    "nothing best": lambda text: _edit(text, lambda chain: chain.update(best=[])),
    "cost is text": lambda text: _edit(text, lambda chain: chain["at"].__setitem__(0, "1")),
    "cost is not a number": lambda text: _edit(text, lambda chain: chain["at"].__setitem__(0, float("nan"))),
    "point is text": lambda text: _edit(text, lambda chain: chain["at"].__setitem__(1, "012")),
    "chance is negative": lambda text: _edit(text, lambda chain: chain["chance"]["state"].update(state=-1)),
    "a visit lacks its origin": lambda text: _edit(text, lambda chain: chain["at"].pop()),
    "fewer chains": lambda text: json.dumps({**json.loads(text), "chains": json.loads(text)["chains"][:1]}),
}


def _edit(text, change):
    content = json.loads(text)
    change(content["chains"][0])
    return json.dumps(content)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_named(tmp_path, states, how):
    path = tmp_path / "c.json"
    write(path, "here", states)
    text = path.read_text()
    damaged = DAMAGE[how](text)
    assert damaged != text
    path.write_text(damaged)
    with pytest.raises(SearchError, match=r"c\.json.*start without --resume"):
        read(path, "here", 2)


UNTRUE = {
    "a sharding that is not there": lambda state: _at(state, point=(0, 0, 99)),
    "a topology of no strategy": lambda state: _at(state, origin=(0, 99, 0)),
    "too few shardings": lambda state: _at(state, point=(0,), origin=(0,)),
    "hardly any cost": lambda state: _with_cost(state, 1e-9),
    "a cost below zero": lambda state: _with_cost(state, -1.0),
    "a best that costs something else": lambda state: replace(
        state, best=(state.best[0]._replace(cost_s=1e-9), *state.best[1:])
    ),
    "more steps than there are": lambda state: replace(state, step=10**9),
    "more accepted than tried": lambda state: replace(state, accepted=38),
    "too long unchanged": lambda state: replace(state, unchanged=50),
}


def _at(state, **change):
    return replace(state, at=state.at._replace(**change))


@pytest.mark.parametrize("how", UNTRUE)
def test_a_file_that_says_what_cannot_be_is_named(tmp_path, valley, states, how):
    class Bounded(type(valley)):
        def compute_cost_s(self, point, origin):
            known = range(10)
            return super().compute_cost_s([known[at] for at in point], [known[at] for at in origin])

    path = tmp_path / "c.json"
    write(path, "here", states)
    check(path, read(path, "here", 2), Bounded(), Rules())
    write(path, "here", (states[0], UNTRUE[how](states[1])))
    with pytest.raises(SearchError, match=r"c\.json.*start without --resume"):
        check(path, read(path, "here", 2), Bounded(), Rules())


def test_a_missing_file_and_one_of_another_search_are_named(tmp_path, states):
    with pytest.raises(SearchError, match=r"c\.json cannot be read"):
        read(tmp_path / "c.json", "here", 2)
    write(tmp_path / "c.json", "here", states)
    with pytest.raises(SearchError, match=r"c\.json belongs to another search"):
        read(tmp_path / "c.json", "there", 2)


def test_fingerprints_tell_searches_apart():
    assert compute_fingerprint(Rules(), 1) == compute_fingerprint(Rules(), 1)
    assert (
        len(
            {
                compute_fingerprint(Rules(), 1),
                compute_fingerprint(Rules(), 2),
                compute_fingerprint(Rules(steps=9), 1),
            }
        )
        == 3
    )
