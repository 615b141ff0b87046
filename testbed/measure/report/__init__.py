"""One run as one HTML file."""

from testbed.measure.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
