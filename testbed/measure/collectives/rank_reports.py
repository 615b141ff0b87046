"""Reports of the ranks and guards of one launch, and the diagnosis of a failure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from testbed.design.model import Nic, Wiring
from testbed.errors import CollectiveError, CollectiveTimeout
from testbed.lab.hosts.fleet import CommandResult, Launch
from testbed.lab.model import Lab

MAX_NAMED_HOSTS = 4


@dataclass(slots=True)
class RankReports:
    """Messages of ranks and guards, by host. `error_by_host` and `guard_report_by_host` are in order of arrival.

    `next_ready_message_by_host` holds ranks that are done and wait for another job. `unstarted_hosts` holds hosts
    whose rank ended before it was ready. `processor_s` is the processor time of all ranks.
    """

    ready_message_by_host: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_position_by_host: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    done_hosts: set[str] = field(default_factory=set)
    error_by_host: dict[str, str] = field(default_factory=dict)
    guard_report_by_host: dict[str, dict[str, Any]] = field(default_factory=dict)
    unstarted_hosts: set[str] = field(default_factory=set)
    next_ready_message_by_host: dict[str, dict[str, Any]] = field(default_factory=dict)
    processor_s: float = 0.0

    def store_event(self, host: str, line: str) -> str:
        """Store the event of one line and return its kind, or "" if the line is not an event."""
        try:
            message = json.loads(line)
            event = str(message["event"])
        except (ValueError, KeyError, TypeError):
            return ""
        match event:
            case "ready":
                self.processor_s += message.get("processor_s", 0.0)
                (self.next_ready_message_by_host if host in self.done_hosts else self.ready_message_by_host)[
                    host
                ] = message
            case "at":
                self.last_position_by_host[host] = f"{message['configuration']}, {message['size']} B"
            case "row":
                self.rows.append(message | {"host": host})
            case "done":
                self.done_hosts.add(host)
                self.processor_s += message.get("processor_s", 0.0)
            case "error":
                self.error_by_host[host] = message["message"]
            case "guard":
                self.guard_report_by_host[host] = message
        return event

    def read_until(self, launch: Launch, awaited_messages: Sized, host_count: int, timeout_s: float) -> None:
        """Store events until `awaited_messages` (a part of these reports) has all hosts, a host fails, or time ends."""
        end_s = time.monotonic() + timeout_s
        while (remaining_s := end_s - time.monotonic()) > 0 and launch.running and not self.has_failed:
            if len(awaited_messages) == host_count:
                return
            for host, line in launch.read_lines(min(0.5, remaining_s)):
                self.store_event(host, line)
                if len(awaited_messages) == host_count or self.has_failed:
                    break

    @property
    def has_failed(self) -> bool:
        """True if a rank is lost, because the other ranks would wait for it."""
        guards = self.guard_report_by_host.values()
        return bool(self.error_by_host) or any(
            guard["reason"] != "exit" or guard["status"] != 0 for guard in guards
        )

    @property
    def is_overdue(self) -> bool:
        """True if a guard ended its rank at the deadline."""
        return any(guard["reason"] == "deadline" for guard in self.guard_report_by_host.values())

    @property
    def killed_hosts(self) -> Iterator[str]:
        """Hosts whose rank died of a signal that its guard did not send."""
        return (
            host
            for host, guard in self.guard_report_by_host.items()
            if guard["reason"] == "exit" and guard["status"] < 0
        )

    @property
    def failed_hosts(self) -> Iterator[str]:
        """Hosts whose rank exited with an error."""
        return (
            host
            for host, guard in self.guard_report_by_host.items()
            if guard["reason"] == "exit" and guard["status"] > 0
        )


class Diagnosis:
    """Diagnosis of a failed launch. It turns reports into an error that tells an operator where to look."""

    def __init__(
        self,
        lab: Lab,
        wiring: Wiring,
        reports: RankReports,
        command_result_by_host: Mapping[str, CommandResult],
        deadline_s: float,
    ) -> None:
        self.lab = lab
        self.wiring = wiring
        self.reports = reports
        self.completed = command_result_by_host
        self.deadline_s = deadline_s
        self.node_by_host = {host.name: node for node, host in enumerate(lab.hosts)}

    def make_not_ready_error(self) -> CollectiveError:
        """Return the error for ranks that did not get ready. It names the ranks that ended, or else all missing ranks.

        If the deadline passed first, return the error of `make_failure_error`.
        """
        if self.reports.is_overdue:
            return self.make_failure_error()
        missing_hosts = [host for host in self.node_by_host if host not in self.reports.ready_message_by_host]
        named_hosts = [
            host for host in missing_hosts if host in self.reports.unstarted_hosts
        ] or missing_hosts
        reasons = "; ".join(
            f"rank {self.node_by_host[host]} ({host}): {self._read_last_lines(host)}"
            for host in named_hosts[:MAX_NAMED_HOSTS]
        )
        summary = f"{len(named_hosts)} of {len(self.node_by_host)} ranks did not get ready"
        hint = "Check that the Python of these hosts has torch: `testbed doctor LAB`"
        return CollectiveError(
            f"{summary}, so none ran: {reasons}{_describe_omitted(named_hosts)}. {hint}{self._describe_unconfirmed()}"
        )

    def make_failure_error(self) -> CollectiveError:
        """Return the error for ranks that did not finish.

        The first cause found counts: unreachable hosts, dark links, the deadline, and otherwise the first failed rank.
        """
        silent_hosts = [
            host
            for host in self.node_by_host
            if host not in self.reports.guard_report_by_host and host not in self.completed
        ]
        if silent_hosts and self.reports.guard_report_by_host:
            cause_text = ", ".join(
                map(self._describe_rank, silent_hosts[:MAX_NAMED_HOSTS])
            ) + _describe_omitted(silent_hosts)
            return CollectiveTimeout(
                f"the AllReduce did not finish: {cause_text} cannot be reached any more. Look at the management "
                f"network and at these hosts; {self._describe_ending()}"
            )
        dark_texts = list(self._describe_dark_links())
        if dark_texts:
            cause_text = "; ".join(dark_texts[:MAX_NAMED_HOSTS]) + _describe_omitted(dark_texts)
            return CollectiveTimeout(f"the AllReduce did not finish: {cause_text}. {self._describe_ending()}")
        if self.reports.is_overdue:
            unready_hosts = [
                host for host in self.node_by_host if host not in self.reports.ready_message_by_host
            ]
            unfinished_hosts = unready_hosts or [
                host for host in self.node_by_host if host not in self.reports.done_hosts
            ]
            cause_text = ", ".join(
                map(self._describe_rank, unfinished_hosts[:MAX_NAMED_HOSTS])
            ) + _describe_omitted(unfinished_hosts)
            return CollectiveTimeout(
                f"the AllReduce did not finish within {self.deadline_s:g} s: {cause_text} waited although every NIC "
                f"has carrier. Look with `testbed verify`, or allow more time. {self._describe_ending()}"
            )
        return CollectiveError(
            f"the AllReduce failed: {self._describe_first_failure()}. {self._describe_ending()}"
        )

    def _describe_dark_links(self) -> Iterator[str]:
        """Yield a description of each link without carrier at its receiver, according to the receiver's guard."""
        links_by_receiver = self.wiring.link_by_receiver
        for node, host in enumerate(self.lab.hosts):
            dark_nics = self.reports.guard_report_by_host.get(host.name, {}).get("dark_nics", ())
            for index, nic in enumerate(host.nics):
                link = links_by_receiver.get(Nic(node, index))
                if link is not None and nic.name in dark_nics:
                    yield f"{self._describe_rank(host.name)} has no light on {self.lab.link_label(link)}"

    def _describe_first_failure(self) -> str:
        """Describe the rank that failed first. Killed ranks go first: they report nothing and make others fail."""
        for host in self.reports.killed_hosts:
            return (
                f"{self._describe_rank(host)} was ended by signal"
                f" {-self.reports.guard_report_by_host[host]['status']}"
            )
        for host, message in self.reports.error_by_host.items():
            return f"{self._describe_rank(host)}: {message}"
        silent_hosts = [host for host in self.node_by_host if host not in self.reports.guard_report_by_host]
        for host in (*self.reports.failed_hosts, *silent_hosts, *self.node_by_host):
            return f"{self._describe_rank(host)}: {self._read_last_lines(host)}"
        raise AssertionError("a launch without ranks cannot fail")

    def _describe_rank(self, host: str) -> str:
        return (
            f"rank {self.node_by_host[host]} ({host}, at"
            f" {self.reports.last_position_by_host.get(host, 'the start')})"
        )

    def _read_last_lines(self, host: str) -> str:
        command_result = self.completed.get(host)
        if command_result is None:
            return "it sent nothing"
        # Warnings of torch start with "[W" and never explain the failure.
        lines = [line for line in command_result.stderr.strip().splitlines() if not line.startswith("[W")]
        if lines:
            return lines[-1][-300:]
        if command_result.exit_status < 0:
            return "it was killed, or the host is down"
        return f"it printed no error (exit status {command_result.exit_status})"

    def _describe_ending(self) -> str:
        return "All ranks were ended" + self._describe_unconfirmed()

    def _describe_unconfirmed(self) -> str:
        """Return a message suffix with the hosts that did not confirm the end of their rank, or "" if all did.

        The guards on these hosts end the rank at the deadline at the latest.
        """
        silent_hosts = [
            host
            for host in self.node_by_host
            if host not in self.reports.guard_report_by_host and host not in self.completed
        ]
        return f"; not confirmed by {', '.join(silent_hosts)}" if silent_hosts else ""


def _describe_omitted(items: list[str]) -> str:
    rest_count = len(items) - MAX_NAMED_HOSTS
    return f" and {rest_count} more" if rest_count > 0 else ""
