"""HTML report of a run."""

from testbed.measure.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
