"""Photonic inference: control, calibration, compilation, execution. Nothing here yet."""
