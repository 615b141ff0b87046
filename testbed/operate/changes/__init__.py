"""Changes that are planned now and applied later: the file, the state it was made for, what it touches, how long."""
