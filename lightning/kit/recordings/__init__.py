"""A session with a device in a file, and the device that the file makes.

| module | what it is for |
|---|---|
| `recording` | `record(soc, file)`; the file |
| `replay` | `replay://FILE`: a device that answers as the recorded one did |
"""
