"""Commands that measure, and look at what was measured."""
