"""The proof of a lab: evidence from switches and hosts, judged all at once, so that a cause is told once."""
