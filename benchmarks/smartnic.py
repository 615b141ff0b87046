"""Requests a second of the simulated smartNIC at 250 MHz, by memory latency, beside its datapath alone. One JSON line.

Requests follow each other without a gap. Networks have random weights; their time does not depend on them. With latency
the memory has the refresh of a DDR4: 350 ns every 7.8 us. Needs Verilator.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise

import numpy as np

from fpga.photonic_mac.cycles import Timing, calculate_cycles, sum_cycles
from fpga.smartnic.frames import Endpoint, get_payload, make_datagram
from fpga.smartnic.program import NicLayer, NicModel, NicProgram
from fpga.smartnic.simulator import Settings, SmartNic
from lightning.serving.packets.codec import Kind, Packet, decode_answer, parse, serialise

CLOCK_HZ = 250e6
CYCLE_NS = 4
NETWORKS = {"64-10": (64, 10), "64-32-10": (64, 32, 10), "784-300-100-10": (784, 300, 100, 10)}
LATENCIES_NS = (0, 50, 100)


def model(name: str, sizes: tuple[int, ...]) -> NicModel:
    draw = np.random.default_rng(1)
    weights = [draw.integers(-255, 256, (outputs, inputs)) for inputs, outputs in pairwise(sizes)]
    layers = tuple(NicLayer(each, np.zeros(len(each), int), np.ones(len(each))) for each in weights)
    return NicModel(name, layers, follows_published_datapath=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=30, help="requests for each network and latency")
    requests = parser.parse_args().requests
    program = NicProgram(tuple(model(name, sizes) for name, sizes in NETWORKS.items()))
    settings = Settings()
    client, end = (
        Endpoint("02:00:00:00:00:01", "10.77.0.1", 9),
        Endpoint(settings.mac, settings.address, settings.port),
    )
    nic = SmartNic(settings)
    nic.load(program)
    draw = np.random.default_rng(2)
    report: dict[str, object] = {"clock_mhz": CLOCK_HZ / 1e6, "requests": requests}
    begin, first_cycle = time.perf_counter(), nic.cycle
    for latency_ns in LATENCIES_NS:
        nic.set_input("memory_latency", -(-latency_ns // CYCLE_NS))
        nic.set_input("memory_refresh_every", 1950 if latency_ns else 0)
        for number, (name, sizes) in enumerate(NETWORKS.items()):
            for request in range(requests):
                image = draw.integers(0, 256, sizes[0], np.uint8).tobytes()
                nic.send(make_datagram(serialise(Packet(Kind.REQUEST, number, request, image)), client, end))
            nic.run_until_idle()
            cycles, frames = zip(*nic.receive(), strict=True)
            datapath = decode_answer(parse(get_payload(frames[-1])).payload).cycles
            # The first ones fill the buffers.
            each = float(np.diff(cycles)[4:].mean())
            published = sum_cycles(calculate_cycles([(b, a) for a, b in pairwise(sizes)], Timing()))
            report[f"{name}, {latency_ns} ns"] = {
                "requests_per_s": round(CLOCK_HZ / each),
                "cycles": round(each, 1),
                "datapath_cycles": datapath,
                "published_datapath_cycles": published,
            }
    report["simulated_cycles_per_s"] = round((nic.cycle - first_cycle) / (time.perf_counter() - begin))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
