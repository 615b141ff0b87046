"""Turns: nobody overtakes, and nobody waits longer than he said."""

import threading

import pytest

from lightning.serving.model_instance import FairLock


def test_who_waits_is_not_overtaken_by_who_comes_back(wait_for):
    turn, order = FairLock(), []
    turn.acquire()

    def other():
        with turn:
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    wait_for(lambda: turn._queue_lock.locked())
    turn.release()
    with turn:
        order.append("first again")
    thread.join()
    assert order == ["other", "first again"]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_turn_that_does_not_come_in_time(timeout):
    turn = FairLock()
    assert turn.acquire(timeout_s=timeout)
    assert not turn.acquire(timeout_s=timeout)
    turn.release()
    assert turn.acquire(timeout_s=timeout)
    turn.release()


def test_the_turn_is_given_back_after_an_error():
    turn = FairLock()
    with pytest.raises(KeyError), turn:
        raise KeyError
    assert turn.acquire(timeout_s=0)
