"""Offloading of whole batches on two cores: the trainer on one core and the worker on the other, over TCP.

    python benchmarks/offload_bars.py pairs 7      speed-up over local, the median of this number of valid pairs
    python benchmarks/offload_bars.py grid 8 4 2   rate at the algorithm's ratio and at 11 others, for these G/L
    python benchmarks/offload_bars.py cpu          processor time of the trainer by ratio
    python benchmarks/offload_bars.py plain        processor time of torch's loader over ours, relative to the dataset
    python benchmarks/offload_bars.py table        four baselines

The model's step is a timed wait: SIMULATED. Prints a JSON line for each measurement, and a final line with `bar`,
`asked` and `met`. A pair is valid if other processes used at most 0.2 of its cores. On a shared machine, a session with
a higher priority achieves that, in bursts of a second or two, each followed by a pause of the same length:

    setsid --wait sh -c 'echo -20 > /proc/self/autogroup; python benchmarks/offload_bars.py pairs'
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
from testbed.offload.local_workers import start_local_workers
from testbed.offload.policy import Candidate, Metrics, decide
from testbed.offload.profile import Bench, Settings, Trial
from testbed.offload.stages import fix_allocator_thresholds
from testbed.offload.workloads.timed import TimedStep

BATCH = 32
TRAINER, WORKER = 0, 1
FACTORS = (8, 4, 2, 1.5, 1.05, 0.8)
GRID = [number / 10 for number in range(11)]
OTHER_LOAD = 0.2


class Fields(Dataset):
    """Random fields of 3 x 128 x 128 floats (192 KiB), filtered in frequency; about 2.7 ms of processor time each."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        field = np.random.default_rng(index).random((3, 128, 128), dtype=np.float32)
        for _ in range(9):
            spectrum = np.fft.rfft2(field)
            spectrum[:, 32:96] *= 0.5
            field = np.fft.irfft2(spectrum)
        return torch.from_numpy(field.astype(np.float32))


def busy(core: int) -> float:
    """Return the seconds that a core was busy since the start of the machine, for all processes."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _wait, irq, softirq, steal, *_ = map(int, line.split()[1:])
            return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return 0.0


def process_s(process: int) -> float:
    """Return the processor time of another process in s."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class Stand:
    """Measurements of a loader with one worker."""

    def __init__(self, address: str) -> None:
        self.engine = DaskEngine(address)
        self.loader = OffloadedLoader(Fields(), batch_size=BATCH, engine=self.engine)
        self.sides = self.loader.sides()
        client = self.engine._client  # noqa: SLF001 - only for the process ids
        pids = [*client.run(os.getpid).values(), client.run_on_scheduler(os.getpid)]
        self.own_processes = pids
        self.is_ahead = follow_priority(pids)

    def bench(self, step_s: float, batches: int) -> Bench:
        settings = Settings(batches=batches, rounds=1, warm_up=3)
        return Bench(self.sides, BATCH, 4096, TimedStep(step_s), settings, Rule())

    def measure(self, rule: Rule | None, step_s: float = 0.0, batches: int = 12) -> tuple[Trial, float]:
        """Measure a trial; also return the load of other processes on its cores meanwhile, in cores."""
        cores = (TRAINER, WORKER) if rule and rule.candidate else (TRAINER,)
        bench = self.bench(step_s, batches)
        begin, before = time.perf_counter(), self._others_s(cores)
        trial = bench.run_trial(rule)
        other = (self._others_s(cores) - before) / (time.perf_counter() - begin)
        if self.is_ahead:
            time.sleep(time.perf_counter() - begin)  # let waiting processes run
        return trial, other

    def _others_s(self, cores: tuple[int, ...]) -> float:
        """Return the seconds that these cores were busy with other processes."""
        worker_s = sum(map(process_s, self.own_processes)) if WORKER in cores else 0.0
        return sum(map(busy, cores)) - time.process_time() - worker_s


def follow_priority(processes: list[int]) -> bool:
    """Give the workers' sessions the priority of this session; return whether it is raised."""
    own = Path("/proc/self/autogroup")
    if not own.exists():
        return False
    nice = own.read_text().split()[-1]
    for process in processes:
        Path(f"/proc/{process}/autogroup").write_text(nice)
    return int(nice) < 0


def say(**values: object) -> None:
    print(json.dumps({n: round(v, 4) if isinstance(v, float) else v for n, v in values.items()}), flush=True)


def bar(name: str, asked: str, *, met: bool, **measured: object) -> None:
    """Print the final line of a measurement."""
    say(bar=name, asked=asked, **measured, met=met)


def ratio_of(stand: Stand, step_s: float) -> tuple[Metrics, float]:
    """Measure the metrics in three alternating rounds; return them, and the ratio of Algorithm 1."""
    rules = {"model": None, "local": Rule(), "p3": Rule("p3", 1.0)}
    trials_by_rule = {name: [] for name in rules}
    for _ in range(3):
        for name, rule in rules.items():
            trials_by_rule[name].append(stand.measure(rule, step_s)[0])
    rate = {name: median(trial.rate for trial in trials) for name, trials in trials_by_rule.items()}
    cpu_s = {name: median(trial.cpu_s for trial in trials) for name, trials in trials_by_rule.items()}
    metrics = Metrics(
        rate["model"], rate["local"], cpu_s["local"], {"p3": Candidate(rate["p3"], cpu_s["p3"])}
    )
    return metrics, decide(metrics).ratio


def pairs(stand: Stand, required: int = 7) -> None:
    """Measure pairs of local and offloaded runs until `required` are valid, at most five times as many.

    The order within a pair alternates.
    """
    _, ratio = ratio_of(stand, 0.0)
    ours = Rule("p3", ratio)
    results: list[tuple[bool, float, bool]] = []
    while sum(valid for valid, _, _ in results) < required and len(results) < 5 * required:
        order = (Rule(), ours) if len(results) % 2 == 0 else (ours, Rule())
        trials = {rule: stand.measure(rule, batches=36) for rule in order}
        (local, first_load), (offloaded, second_load) = trials[order[0]], trials[order[1]]
        if order[0] is ours:
            local, offloaded = offloaded, local
        load = max(first_load, second_load)
        share = offloaded.cpu_s / local.cpu_s
        results.append((load <= OTHER_LOAD, offloaded.rate / local.rate, share <= 1.1 - ratio))
        say(
            pair=len(results),
            local=local.rate,
            ours=offloaded.rate,
            speed_up=results[-1][1],
            other_load=load,
            valid=results[-1][0],
            cpu_share=share,
        )
    valid = [speed_up for is_valid, speed_up, _ in results if is_valid]
    every = median(speed_up for _, speed_up, _ in results)
    bar(
        "speed-up over local",
        f"1.5 or more, median of {required} valid pairs",
        measured=median(valid) if valid else None,
        valid_pairs=len(valid),
        of_pairs=len(results),
        median_of_all=every,
        ratio=ratio,
        met=len(valid) >= required and median(valid) >= 1.5,
    )
    held = sum(is_within for _, _, is_within in results)
    bar("processor time at the ratio", "1 - r + 0.1 or less, always", held=held, met=held == len(results))


def grid(stand: Stand, *factors: float) -> None:
    shares = []
    for factor in factors or FACTORS:
        local, _ = stand.measure(Rule())
        step_s = BATCH / (local.rate * factor)
        metrics, ratio = ratio_of(stand, step_s)
        rates = {each: [] for each in sorted({*GRID, ratio})}
        for _ in range(3):
            for each, rates_of in rates.items():
                rates_of.append(stand.measure(Rule("p3", each) if each else Rule(), step_s, 16)[0].rate)
        medians = {each: median(rates_of) for each, rates_of in rates.items()}
        best = max(GRID, key=medians.__getitem__)
        shares.append(medians[ratio] / medians[best])
        say(
            factor=factor,
            gthp=metrics.gthp,
            lthp=metrics.lthp,
            rthp=metrics.candidates["p3"].rthp,
            ratio=ratio,
            rate=medians[ratio],
            best_ratio=best,
            best=medians[best],
            share=shares[-1],
            met=shares[-1] >= 0.9,
        )
    held = sum(share >= 0.9 for share in shares)
    asked = "90 % of the best of 11 ratios, in all cases but one"
    bar(
        "Algorithm 1 against a grid",
        asked,
        held=held,
        of=len(shares),
        met=held >= len(shares) - (len(shares) > 1),
    )


def table(stand: Stand) -> None:
    rows = {"plain DataLoader": [], "all remote": [], "both, no ratio": [], "ours": []}
    _, ratio = ratio_of(stand, 0.0)
    for _ in range(5):
        plain = iter(DataLoader(Fields(), batch_size=BATCH, num_workers=1))
        for _ in range(3):
            next(plain)
        begin = time.perf_counter()
        for _ in range(24):
            next(plain)
        rows["plain DataLoader"].append(24 * BATCH / (time.perf_counter() - begin))
        del plain
        rows["all remote"].append(stand.measure(Rule("p3", 1.0))[0].rate)
        rows["both, no ratio"].append(greedy(stand))
        rows["ours"].append(stand.measure(Rule("p3", ratio))[0].rate)
    medians = {name: median(rates) for name, rates in rows.items()}
    bar(
        "four baselines",
        "ours 95 % of the best or more",
        **medians,
        met=medians["ours"] >= 0.95 * max(medians.values()),
    )


def greedy(stand: Stand, batches: int = 24) -> float:
    """Measure the rate of both sides without a ratio: the next batch is from the side that is ready, as in tf.data."""
    from concurrent.futures import FIRST_COMPLETED, wait

    order, number = Order(range(4096), BATCH), 0
    begin, count = None, 0
    sides = {"here": 0, "there": 0}
    runner = stand.sides.runner
    futures = {}
    while count < batches + 3:
        while sides["there"] < 2:
            futures[stand.engine.submit("p3", order.get_batch(number % 256), 0)] = "there"
            number, sides["there"] = number + 1, sides["there"] + 1
        while sides["here"] < 2:
            futures[
                stand.sides.trainer_threads.submit(runner.prepare_batch, order.get_batch(number % 256), 0)
            ] = "here"
            number, sides["here"] = number + 1, sides["here"] + 1
        ready, _ = wait(futures, return_when=FIRST_COMPLETED)
        first = next(iter(ready))
        sides[futures.pop(first)] -= 1
        count += 1
        if count == 3:
            begin = time.perf_counter()
    rate = batches * BATCH / (time.perf_counter() - begin)
    wait(futures)
    return rate


def plain_cost(_stand: Stand) -> None:
    """Measure the processor time of torch's loader with ours inside, relative to the dataset alone, in turns."""
    part = torch.utils.data.Subset(Fields(), range(384))
    loader = OffloadedLoader(part, batch_size=BATCH)
    shares = []
    for _ in range(15):
        spent = []
        for iterable in (DataLoader(part, batch_size=BATCH), DataLoader(loader, batch_size=None)):
            before = time.process_time()
            for _batch in iterable:
                pass
            spent.append(time.process_time() - before)
        shares.append(spent[1] / spent[0])
    loader.close()
    each = [round(share, 3) for share in shares]
    bar("not the bottleneck", "1.02 or less", measured=median(shares), each=each, met=median(shares) <= 1.02)


def cpu(stand: Stand, turns: int = 5) -> None:
    """Measure the trainer's processor time per sample at ratios r, against (1 - r + 0.1) of that without offloading."""
    held = []
    for number in range(turns):
        local, _ = stand.measure(Rule())
        cpu_shares = {
            ratio: stand.measure(Rule("p3", ratio))[0].cpu_s / local.cpu_s for ratio in (0.25, 0.5, 0.75, 1.0)
        }
        held.append(all(share <= 1 - ratio + 0.1 for ratio, share in cpu_shares.items()))
        shares = {f"r{ratio}": share for ratio, share in cpu_shares.items()}
        say(turn=number, pcycle_ms=1000 * local.cpu_s, **shares, met=held[-1])
    bar(
        "processor time of the trainer", "(1 - r + 0.1) Pcycle or less, always", held=sum(held), met=all(held)
    )


def main() -> None:
    os.sched_setaffinity(0, {TRAINER})
    torch.set_num_threads(1)
    fix_allocator_thresholds()
    what, *more = sys.argv[1:] or ["cpu"]
    with start_local_workers(1, command_prefix=["taskset", "-c", str(WORKER)]) as address:
        stand = Stand(address)
        commands = {"pairs": pairs, "grid": grid, "table": table, "plain": plain_cost, "cpu": cpu}
        commands[what](stand, *(float(each) if what == "grid" else int(each) for each in more))
        stand.loader.close()


if __name__ == "__main__":
    main()
