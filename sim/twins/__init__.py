"""Simulated devices that speak the real wire protocols, each as a process or part of `sim.lab`."""
