"""Physics of the photonic kit in SI units: one small module per device, with numpy alone.

    laser ─ polarisation ─┬─ modulator ─ fibre ─ modulator ─┐
                          └─ modulator ─ fibre ─ modulator ─┴─ wavelengths ─ detector ─ amplifier ─ converter

    constants      four constants of nature, and room temperature
    decibels       dB, dBm and dB/Hz to ratios, watts and densities, and back
    laser          power, wavelength, relative intensity noise, linewidth
    modulator      Mach-Zehnder intensity modulator: voltage to transmission, and the inverse
    drift          drift of a bias: an Ornstein-Uhlenbeck process, and temperature
    polarisation   loss by misalignment, and its random walk
    wavelengths    crosstalk of a demultiplexer, beat of equal wavelengths
    fibre          delay and loss of a fibre; delays by fractions of a sample
    pole           first-order low-pass: memory between samples, bandwidth of noise and of 3 dB, correlation
    detector       light to current: responsivity, dark current, bandwidth
    noise          shot, thermal and relative intensity noise, their sum; correlated random numbers
    amplifier      gain, saturation, noise figure
    converter      quantisation, clipping, effective bits, aperture jitter
    link           noise budget of the whole chain, in LSB

Parameters are frozen dataclasses that raise `ValueError` for impossible values. Formulas are plain functions; most take
a number or an array. Names end in the unit: `_v`, `_w`, `_a`, `_hz`, `_s`, `_m`, `_rad`, `_db`. There is no hidden
random state: the caller passes a `numpy.random.Generator` or standard normal numbers.

`docs/reference/photonic-kit.md` has the noise budget, and what is not modelled.
"""
