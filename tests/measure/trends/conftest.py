"""Fixtures of the tests of series over runs."""

from laboratories import laboratory

__all__ = ["laboratory"]
