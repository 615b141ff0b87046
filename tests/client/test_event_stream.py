"""Server-sent events as the HTML standard has them, however the bytes arrive; and both clients alike."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("httpx")

import itertools

import httpx

from testbed.client import AsyncClient, AsyncLab, Client, Lab, ServiceRefused, ServiceUnreachable, calls
from testbed.client.documents import EventParser

# Written from the section "Parsing an event stream" of the HTML standard: a comment, an event of two lines of data,
# one without data (it is not dispatched), and CR LF as end of line.
STREAM = (
    b": ping\n\n"
    b'id: 7\nevent: run\ndata: {"number": 7,\ndata:  "lab": "l1"}\n\n'
    b"id: 8\nevent: run\n\n"
    b'id: 9\r\nevent: step\r\ndata: {"event": "SEND"}\r\n\r\n'
)


def test_events_of_a_stream():
    parser = EventParser()

    first, second = parser.feed(STREAM)

    assert (first.number, first.kind, first.document, first.lab) == (
        7,
        "run",
        {"number": 7, "lab": "l1"},
        "l1",
    )
    assert (second.number, second.kind, second.event, second.run) == (9, "step", "SEND", "")
    assert parser.last_number == 9


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_bytes_may_arrive_in_any_pieces(cuts):
    parser, found = EventParser(), []
    ends = [0, *sorted(cuts), len(STREAM)]
    for begin, end in itertools.pairwise(ends):
        found += parser.feed(STREAM[begin:end])

    assert found == list(EventParser().feed(STREAM))


def test_an_event_that_is_broken_off_is_none():
    parser = EventParser(3)

    assert list(parser.feed(b'id: 4\ndata: {"x": 1}\n')) == []
    assert parser.last_number == 3


@pytest.mark.parametrize(("here", "there"), [(Client, AsyncClient), (Lab, AsyncLab)])
def test_both_clients_have_the_same_methods(here, there):
    def methods(kind):
        return {
            name: [str(one).replace("Async", "") for one in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if inspect.isfunction(method) and not name.startswith("_")
        }

    assert methods(here) == methods(there)


def test_a_problem_is_told_as_the_error_that_it_is():
    document = {"status": 423, "code": "maintenance", "who": "conflict", "detail": "hands in the rack"}
    request = httpx.Request("GET", "http://lab/v1/labs")
    headers = {"content-type": "application/problem+json"}
    with pytest.raises(ServiceRefused, match="hands in the rack") as refused:
        calls.list_labs().parse_answer(httpx.Response(423, json=document, headers=headers, request=request))

    assert (refused.value.status, refused.value.code, refused.value.who) == (423, "maintenance", "conflict")
    with pytest.raises(ServiceUnreachable, match="502"):
        calls.list_labs().parse_answer(httpx.Response(502, text="<html>", request=request))
    with pytest.raises(ServiceUnreachable, match="testbed serve"):
        calls.list_labs().parse_answer(httpx.Response(200, json={"else": 1}, request=request))
