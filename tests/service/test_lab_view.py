"""Views of a lab: nobody waits for a look of somebody else, but for the one after a change."""

from __future__ import annotations

import threading

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")


@pytest.fixture
def looking(service):
    """Provide a view, in which a thread looks until it is let go; what is known is `old`, what it finds `new`."""
    view, begun, let_go = service.labs[0], threading.Event(), threading.Event()
    assert view.get_cached("it", lambda: "old") == "old"

    def find():
        begun.set()
        assert let_go.wait(60)
        return "new"

    looker = threading.Thread(target=view.get_cached, args=("it", find, -1.0))
    looker.start()
    assert begun.wait(60)
    yield view, let_go
    let_go.set()
    looker.join()


def test_others_get_what_is_known_while_somebody_looks(looking):
    view, let_go = looking

    assert view.get_cached("it", lambda: "never", -1.0) == "old"
    let_go.set()


def test_after_a_change_everybody_waits_for_the_next_look(looking):
    view, let_go = looking
    let_go.set()
    view.clear_cache()

    assert view.get_cached("it", lambda: "newest") == "newest"
    assert view.get_cached("it", lambda: "never", 60.0) == "newest"
