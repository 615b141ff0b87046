"""Reproduction of published figures of photonic inference: `lightning reproduce smartnic`.

| module | contents |
|---|---|
| `published_models` | layers of the seven networks of the published event simulator |
| `event_simulator` | requests of several networks on a processor of many cores |
| `smartnic` | the figures of Lightning (SIGCOMM 2023), published and ours |
"""
