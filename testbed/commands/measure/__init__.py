"""Commands that measure, and commands that read stored measurements."""
