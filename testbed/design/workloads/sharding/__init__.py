"""Where operators run, and what passes between operators that are sharded differently."""
