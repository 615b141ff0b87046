"""Measurements on a device for its calibration, and their order.

| module | what it is for |
|---|---|
| `batch` | many rows of words measured inside one program |
| `transfer`, `pairs`, `delay` | what is measured |
| `bench` | the device as all of them use it |
| `alignment`, `steps` | the steps of the guided run: first light, delay, polarisation, biases; then the others |
"""
