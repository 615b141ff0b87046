"""Needs of a test, from its markers, and which hosts of a lab meet them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

DEFAULT_HOSTS = 4
DEFAULT_DEGREE = 2


class Marked(Protocol):
    """A test: an item of pytest."""

    def get_closest_marker(self, name: str) -> Any:
        """Return the marker of that name, or None."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a test; None if it has no such marker. `gpus` is the number per host."""

    hosts: int | None = None
    degree: int | None = None
    gpus: int = 0
    board: bool = False

    @classmethod
    def from_item(cls, item: Marked) -> Needs:
        """Return the needs of a test. Raises `ValueError` for a marker whose argument is not a count."""
        return cls(
            hosts=_count(item, "testbed_hosts", least=2),
            degree=_count(item, "testbed_degree"),
            gpus=_count(item, "testbed_gpu", default=1) or 0,
            board=item.get_closest_marker("testbed_board") is not None,
        )


def _count(item: Marked, name: str, *, least: int = 1, default: int | None = None) -> int | None:
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    given = (*marker.args, *marker.kwargs.values())
    count = given[0] if given else default
    if not isinstance(count, int) or isinstance(count, bool) or count < least or len(given) > 1:
        raise ValueError(f"@pytest.mark.{name}{given} is not a count of {least} or more: write {name}(4)")
    return count


@dataclass(frozen=True, slots=True)
class Candidates:
    """Hosts of a running lab, with NICs, faults and GPUs of each.

    `groups` are hosts that circuits join: only a whole group can be changed without taking light from other hosts.
    """

    groups: tuple[tuple[str, ...], ...]
    nics: Mapping[str, int]
    faults: Mapping[str, str]
    gpus: Mapping[str, int]

    def explain_lack(self, needs: Needs) -> str:
        """Return why the lab can never meet the needs; empty if it can."""
        wanted = self._count_wanted(needs)
        fitting = [host for host in self.nics if self._fits(host, needs)]
        if len(fitting) < wanted:
            what = f"{wanted} hosts of {needs.degree or 1} NICs and {needs.gpus} GPUs"
            return f"it has not {what}: {len(fitting)} of {len(self.nics)} hosts are so"
        if sum(map(len, self._usable(needs))) >= wanted:
            return ""
        broken = ", ".join(f"{host}: {fault}" for host, fault in sorted(self.faults.items()))
        if broken:
            return f"it is marked broken ({broken}); `testbed apply` proves it again"
        return f"no {wanted} hosts that fit can be moved without taking light from others"

    def choose(self, needs: Needs, held: Collection[str]) -> tuple[str, ...]:
        """Return free hosts that meet the needs, in whole groups; none if the test must wait.

        Small groups come first, so that a test takes few hosts that it does not need.
        """
        taken: list[str] = []
        for group in self._usable(needs):
            if set(group).isdisjoint(held):
                taken += group
                if len(taken) >= self._count_wanted(needs):
                    return tuple(taken)
        return ()

    def is_whole(self, hosts: Collection[str]) -> bool:
        """Return whether no circuit joins these hosts to others."""
        return all(set(group) <= set(hosts) or set(group).isdisjoint(hosts) for group in self.groups)

    def _count_wanted(self, needs: Needs) -> int:
        return needs.hosts or len(self.nics)

    def _usable(self, needs: Needs) -> Sequence[tuple[str, ...]]:
        return [
            group
            for group in sorted(self.groups, key=len)
            if all(host not in self.faults and self._fits(host, needs) for host in group)
        ]

    def _fits(self, host: str, needs: Needs) -> bool:
        return self.nics[host] >= (needs.degree or 1) and self.gpus.get(host, 0) >= needs.gpus


def join_hosts(hosts: Iterable[str], pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of hosts that pairs connect, in the order of the hosts.

    >>> join_hosts("abcd", [("c", "a")])
    (('a', 'c'), ('b',), ('d',))
    """
    group_of = {host: [host] for host in hosts}
    order = list(group_of)
    for one, other in pairs:
        first, second = group_of[one], group_of[other]
        if first is not second:
            first += second
            group_of.update(dict.fromkeys(second, first))
    unique = {id(group): group for group in (group_of[host] for host in order)}
    return tuple(tuple(sorted(group, key=order.index)) for group in unique.values())
