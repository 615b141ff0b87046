"""Recordings of sessions with a device, and their replay.

| module | purpose |
|---|---|
| `recording` | `record(soc, file)`; the file format |
| `replay` | `replay://FILE`: a device with the recorded results |
"""
