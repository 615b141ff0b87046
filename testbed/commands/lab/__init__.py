"""Commands about a lab: its circuits, hosts and epochs."""
