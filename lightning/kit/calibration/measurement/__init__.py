"""Measurements on a device for its calibration, and their order.

| module | purpose |
|---|---|
| `batch` | the measurement of many rows of words in one program |
| `transfer`, `pairs`, `delay` | transfer curves, encoders and decoder, arrival times |
| `bench` | the device under calibration, and the results so far |
| `alignment` | the first steps of the guided run: laser, delay, light, polarisation, biases |
| `steps` | the other steps, and the order of all |
"""
