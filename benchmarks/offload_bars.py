"""Offloading on two cores: the trainer pinned to one, the worker to the other, real processes over TCP, batch-wise.

    python benchmarks/offload_bars.py pairs 7      speed-up over local, in alternated pairs, with other load
    python benchmarks/offload_bars.py grid 11      the algorithm's rate against a grid of ratios, for six G/L
    python benchmarks/offload_bars.py table        four baselines
    python benchmarks/offload_bars.py plain        processor time of the plain DataLoader over ours
    python benchmarks/offload_bars.py cpu          processor time of the trainer by ratio

The model's step is a timed wait: SIMULATED. Prints a JSON line for each measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from testbed.offload.dask_engine import DaskEngine
from testbed.offload.epoch import Order
from testbed.offload.feed import Rule
from testbed.offload.loader import OffloadedLoader
from testbed.offload.local_workers import workers_here
from testbed.offload.policy import Candidate, Metrics, decide
from testbed.offload.profile import Bench, Settings, Trial
from testbed.offload.stages import set_allocator
from testbed.offload.workloads.timed import TimedStep

BATCH = 32
TRAINER, WORKER = 0, 1


class Fields(Dataset):
    """Random fields of 128 by 128 by 3, some 3 ms of processor time each: made, filtered in frequency."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        field = np.random.default_rng(index).random((3, 128, 128), dtype=np.float32)
        for _ in range(6):
            spectrum = np.fft.rfft2(field)
            spectrum[:, 32:96] *= 0.5
            field = np.fft.irfft2(spectrum)
        return torch.from_numpy(field.astype(np.float32))


def busy(core: int) -> float:
    """Return seconds that a core was busy, of all processes."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _wait, irq, softirq, steal, *_ = map(int, line.split()[1:])
            return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return 0.0


def process_s(process: int) -> float:
    """Return processor time of another process, in seconds."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class Stand:
    """A loader over one worker, and measurements of it."""

    def __init__(self, address: str) -> None:
        self.engine = DaskEngine(address)
        self.loader = OffloadedLoader(Fields(), batch_size=BATCH, engine=self.engine)
        self.sides = self.loader.sides()
        client = self.engine._client  # noqa: SLF001 - processes are counted, not used
        pids = [*client.run(os.getpid).values(), client.run_on_scheduler(os.getpid)]
        self.others = pids

    def bench(self, step_s: float, batches: int) -> Bench:
        settings = Settings(batches=batches, rounds=1, warm_up=3)
        return Bench(self.sides, BATCH, 4096, TimedStep(step_s), settings, Rule())

    def measure(self, rule: Rule | None, step_s: float = 0.0, batches: int = 24) -> tuple[Trial, float]:
        """Return a trial, and how much of both cores went to others meanwhile, in cores."""
        bench = self.bench(step_s, batches)
        began = time.perf_counter()
        before = sum(map(busy, (TRAINER, WORKER))), time.process_time() + sum(map(process_s, self.others))
        trial = bench.trial(rule)
        after = sum(map(busy, (TRAINER, WORKER))), time.process_time() + sum(map(process_s, self.others))
        other = (after[0] - before[0] - (after[1] - before[1])) / (time.perf_counter() - began)
        return trial, other


def say(**values: object) -> None:
    print(json.dumps({n: round(v, 4) if isinstance(v, float) else v for n, v in values.items()}), flush=True)


def pairs(stand: Stand, count: int) -> None:
    local, remote = [], []
    for number in range(count):
        here, load_here = stand.measure(Rule())
        there, _ = stand.measure(Rule("p3", 1.0))
        ratio = there.rate / (here.rate + there.rate)
        ours, load_ours = stand.measure(Rule("p3", ratio))
        load = max(load_here, load_ours)
        local.append(here.rate)
        remote.append(ours.rate)
        pcycle = here.cpu_s
        say(
            pair=number,
            local=here.rate,
            ratio=ratio,
            ours=ours.rate,
            speed_up=ours.rate / here.rate,
            other_load=load,
            valid=load <= 0.2,
            cpu_ratio=ours.cpu_s / pcycle,
            cpu_bar=1 - ratio + 0.1,
        )
    say(median_speed_up=median(o / h for o, h in zip(remote, local, strict=True)))


def grid(stand: Stand, points: int) -> None:
    here, _ = stand.measure(Rule())
    for factor in (8, 4, 2, 1.5, 1.05, 0.8):
        here, _ = stand.measure(Rule())
        step_s = BATCH / (here.rate * factor)
        model, _ = stand.measure(None, step_s)
        local, _ = stand.measure(Rule(), step_s)
        all_there, _ = stand.measure(Rule("p3", 1.0), step_s)
        found = decide(
            Metrics(model.rate, local.rate, local.cpu_s, {"p3": Candidate(all_there.rate, all_there.cpu_s)})
        )
        ratios = sorted({number / (points - 1) for number in range(points)} | {found.ratio})
        rates = {ratio: [] for ratio in ratios}
        for _ in range(3):
            for ratio in ratios:
                rates[ratio].append(stand.measure(Rule("p3", ratio) if ratio else Rule(), step_s, 16)[0].rate)
        medians = {ratio: median(rates[ratio]) for ratio in ratios}
        on_grid = {r: v for r, v in medians.items() if abs(r * (points - 1) - round(r * (points - 1))) < 1e-9}
        best = max(on_grid, key=on_grid.get)
        say(
            factor=factor,
            gthp=model.rate,
            lthp=local.rate,
            rthp=all_there.rate,
            choice=found.candidate,
            ratio=found.ratio,
            rate=medians[found.ratio],
            best_ratio=best,
            best=on_grid[best],
            share=medians[found.ratio] / on_grid[best],
        )


def table(stand: Stand) -> None:
    rows = {"plain DataLoader": [], "all remote": [], "both, no ratio": [], "ours": []}
    for _ in range(5):
        here, _ = stand.measure(Rule())
        there, _ = stand.measure(Rule("p3", 1.0))
        ratio = there.rate / (here.rate + there.rate)
        plain = iter(DataLoader(Fields(), batch_size=BATCH, num_workers=1))
        for _ in range(3):
            next(plain)
        began = time.perf_counter()
        for _ in range(24):
            next(plain)
        rows["plain DataLoader"].append(24 * BATCH / (time.perf_counter() - began))
        del plain
        rows["all remote"].append(there.rate)
        rows["both, no ratio"].append(greedy(stand))
        rows["ours"].append(stand.measure(Rule("p3", ratio))[0].rate)
    say(**{name: median(rates) for name, rates in rows.items()})


def greedy(stand: Stand, batches: int = 24) -> float:
    """Return the rate of local and remote without a ratio: whoever is ready gives the next batch, as in tf.data."""
    from concurrent.futures import FIRST_COMPLETED, wait

    order, number = Order(range(4096), BATCH), 0
    began, taken = None, 0
    sides = {"here": 0, "there": 0}
    runner = stand.sides.runner
    futures = {}
    while taken < batches + 3:
        while sides["there"] < 2:
            futures[stand.engine.submit("p3", order.batch(number % 256), 0)] = "there"
            number, sides["there"] = number + 1, sides["there"] + 1
        while sides["here"] < 2:
            futures[stand.sides.local.submit(runner.batch, order.batch(number % 256), 0)] = "here"
            number, sides["here"] = number + 1, sides["here"] + 1
        ready, _ = wait(futures, return_when=FIRST_COMPLETED)
        first = next(iter(ready))
        sides[futures.pop(first)] -= 1
        taken += 1
        if taken == 3:
            began = time.perf_counter()
    rate = batches * BATCH / (time.perf_counter() - began)
    wait(futures)
    return rate


def plain_cost(_stand: Stand) -> None:
    """Processor time of torch's own loader over ours, against ours alone, in turns."""
    shares = []
    loader = OffloadedLoader(torch.utils.data.Subset(Fields(), range(384)), batch_size=BATCH)
    for _ in range(7):
        spent = []
        for iterable in (loader, DataLoader(loader, batch_size=None)):
            before = time.process_time()
            for _batch in iterable:
                pass
            spent.append(time.process_time() - before)
        shares.append(spent[1] / spent[0])
    loader.close()
    say(processor_time_of_plain_over_ours=median(shares), each=[round(share, 3) for share in shares])


def cpu(stand: Stand) -> None:
    """Trainer's processor time of a sample by ratio, in turns, against (1 - r + 0.1) of all local."""
    for number in range(5):
        here, _ = stand.measure(Rule())
        found = {
            ratio: stand.measure(Rule("p3", ratio))[0].cpu_s / here.cpu_s for ratio in (0.25, 0.5, 0.75, 1.0)
        }
        say(
            turn=number,
            pcycle_ms=1000 * here.cpu_s,
            **{f"r{ratio}": share for ratio, share in found.items()},
            held=all(share <= 1 - ratio + 0.1 for ratio, share in found.items()),
        )


def main() -> None:
    os.sched_setaffinity(0, {TRAINER})
    torch.set_num_threads(1)
    set_allocator()
    what, *more = sys.argv[1:] or ["cpu"]
    with workers_here(1, prefix=["taskset", "-c", str(WORKER)]) as address:
        stand = Stand(address)
        commands = {"pairs": pairs, "grid": grid, "table": table, "plain": plain_cost, "cpu": cpu}
        commands[what](stand, *map(int, more))
        stand.loader.close()


if __name__ == "__main__":
    main()
