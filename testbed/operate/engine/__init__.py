"""The engine of all changes: the table of states, durable records of steps, their order, and reasons to stop."""
