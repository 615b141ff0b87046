"""Commands that measure, and that read stored measurements."""
