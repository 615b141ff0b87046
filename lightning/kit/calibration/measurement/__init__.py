"""Measurements on a device for its calibration, and their order.

| module | purpose |
|---|---|
| `batch` | many rows of words measured inside one program |
| `transfer`, `pairs`, `delay` | transfer curves, encoders and decoder, arrival times |
| `bench` | the device under calibration, and the results so far |
| `alignment`, `steps` | the steps of the guided run: laser, delay, light, polarisation, biases; then the others |
"""
