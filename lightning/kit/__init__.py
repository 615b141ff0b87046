"""The kit of modulators, fibre and detector: what it is asked for, and what it answers.

| room | what lives there | imports of these |
|---|---|---|
| `settings`, `config` | one acquisition; the sliders of a notebook | |
| `profiles`, `checks` | firmware that is known; what is checked before anything is sent | `settings` |
| `programs` | programs of the timed processor | `settings` |
| `instruments` | laser, supply and power meter of a bench | |
| `devices` | deadlines before every device | `checks`, `programs` |
| `calibration` | fringes, decoding, documents; `measurement`, and the guided run | `devices` |
| `connection` | `connect("sim://kit")`: where an address leads | `calibration` |
| `recordings` | a session with a device in a file, and the device that the file makes | `calibration` |
| `dot` | vectors as waveforms | `calibration` |
| `waveform`, `plots` | what a readout recorded, and plots of it | `calibration` |
| `control`, `compute`, `signal_processing` | acquisitions, products, decoding: the faces | all |
"""
