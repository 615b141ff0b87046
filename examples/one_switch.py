"""Drive one optical switch from Python: read it, connect three pairs, look at the light.

python examples/one_switch.py polatis+scpi://192.0.2.7:5025     a real one (it moves light!)
python examples/one_switch.py                                   a simulated one, started here
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ocs_drivers import open_switch


@contextmanager
def simulated_switch() -> Iterator[str]:
    """Yield the address of a Polatis twin that lives as long as the body."""
    command = [sys.executable, "-m", "sim.twins", "polatis", "--size", "16x16"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as twin:
        assert twin.stdin is not None
        assert twin.stdout is not None
        yield json.loads(twin.stdout.readline())["scpi"]
        twin.stdin.close()


def use(address: str) -> None:
    with open_switch(address) as switch:
        identity, size = switch.identity(), switch.capabilities
        print(f"{identity.vendor} {identity.model}, serial {identity.serial}: {size.inputs} x {size.outputs}")
        pairs = {1: size.inputs + 3, 2: size.inputs + 1, 3: size.inputs + 2}
        report = switch.connect(pairs)
        print(f"connected {len(report.pairs)} pairs, read back: {dict(report.read_back.connections)}")
        for port, power in switch.power([*pairs, *pairs.values()]).items():
            print(f"port {port}: {f'{power.dbm:.1f} dBm' if power else 'no monitor'}")
        switch.disconnect(pairs)


def main() -> None:
    if len(sys.argv) > 1:
        use(sys.argv[1])
        return
    with simulated_switch() as address:
        print("SIMULATED")
        use(address)


if __name__ == "__main__":
    main()
