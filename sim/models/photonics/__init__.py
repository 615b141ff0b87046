"""Physics of the photonic kit, one small module a device, in SI units and with numpy alone.

    laser ─ polarisation ─┬─ modulator ─ fibre ─ modulator ─┐
                          └─ modulator ─ fibre ─ modulator ─┴─ wavelengths ─ detector ─ amplifier ─ converter

    constants      the four constants of nature used here
    decibels       dB, dBm and dB/Hz to ratios, watts and densities, and back
    laser          power, wavelength, relative intensity noise, linewidth
    modulator      Mach-Zehnder intensity modulator: voltage to transmission, and the encoding that undoes it
    drift          Ornstein-Uhlenbeck wandering of a bias, and its temperature
    polarisation   loss by misalignment, and its random walk
    wavelengths    crosstalk of a demultiplexer, beating of equal wavelengths
    fibre          delay and loss of a length; delays by fractions of a sample
    pole           first-order low-pass: memory between samples, bandwidth of noise and of 3 dB, correlation
    detector       light to current: responsivity, dark current, bandwidth
    noise          shot, thermal and relative intensity noise, their sum; drawing noise
    amplifier      gain, saturation, noise figure
    converter      quantisation, clipping, effective bits, aperture jitter
    link           all noise in one table, in LSB

Parameters are frozen dataclasses that refuse what cannot be built; formulas are plain functions that take a number or
an array. Units stand in the names: `_v`, `_w`, `_a`, `_hz`, `_s`, `_m`, `_rad`, `_db`. Nothing here draws a random
number by itself: whoever simulates brings a `numpy.random.Generator` or the normal numbers.

`docs/reference/photonics.md` shows the chain with its defaults, sources and worked values.
"""
