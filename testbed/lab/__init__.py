"""Labs: the lab file, its hosts over SSH, forwarding, and simulated labs."""
