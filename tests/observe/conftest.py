"""Fixtures of the tests of metrics and logs."""

from laboratories import laboratory

__all__ = ["laboratory"]
