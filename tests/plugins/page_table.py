"""What a reader puts in place of names and addresses of a page, and the commands that cannot run here."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

PROGRAMS = frozenset(
    (
        *("testbed", "lightning", "countaction", "python", "python3", "pip", "pytest", "dask", "vivado", "make"),
        *("curl", "ssh", "ssh-keygen", "ssh-keyscan", "export", "cd", "cp", "sed", "chmod", "mkdir", "echo", "."),
        *("exec", "control", "mpicc", "lldpd", ".venv-host/bin/torchrun", ".venv-host/bin/pip"),
        *(".venv-clients/bin/dask", "PYRO_SERIALIZERS_ACCEPTED=pickle"),
    )
)
"""First words of lines that are commands, in blocks that do not mark them by `$ `."""

NET = f"10.{70 + os.getpid() % 20}.{os.getpid() % 250}"
"""Where labs of these tests stand, in place of 10.99.0: another run of this machine may have that one."""
LAB = "labs/testbed12.yaml"
OWN_NET = f"sed -i 's/10[.]99[.]0/{NET}/' labs/*.yaml"
EXAMPLES = ["testbed sim examples", OWN_NET]
HOST_PYTHON = 'ln -s "$HOST_ENVIRONMENT" .venv-host'
UP = ["testbed sim up labs/testbed12.yaml --hosts model"]
DOWN = ["testbed sim down labs/testbed12.yaml"]
IN_AN_ENVIRONMENT = "installs from an index; the wheel is built and installed without one"


@dataclass
class Page:
    """What a reader knows or has beyond the page."""

    setup: list[str] = field(default_factory=list)
    """Commands before the first: what the page says that its reader has."""
    places: dict[str, str] = field(default_factory=dict)
    """Texts of the page, and what the reader has in their place."""
    codes: dict[str, int] = field(default_factory=dict)
    """Commands that end with another exit code than 0, as the page says or shows."""
    background: tuple[str, ...] = ()
    """Commands that go on until somebody ends them."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """Commands that the page's prose asks for before one of its commands."""
    after: dict[str, list[str]] = field(default_factory=dict)
    teardown: list[str] = field(default_factory=list)

    def replace(self, text: str) -> str:
        """Return a text of the page with what the reader has in place of its names and addresses."""
        for shown, meant in {**self.places, "10.99.0.": f"{NET}."}.items():
            text = text.replace(shown, meant)
        return text


TRAINED = [  # the first two steps of the tutorial, which the page begins behind
    "cp $PAGES/photonic-inference/train.py .",
    "python train.py",
    "lightning compile digits.npz --samples digits -o digits.lng",
]
AT_MODEL_HOSTS = {"testbed sim up labs/testbed12.yaml": "testbed sim up labs/testbed12.yaml --hosts model"}

PAGES: dict[str, Page] = {
    "count-action": Page(
        codes={"countaction sim broken.ca -P num_DACs=2 -s beats.csv": 1},
    ),
    "photonic-kit": Page(
        codes={
            'lightning multiply 100 50 --device "sim://kit?vary=yes&seed=7"': 1,
            'lightning scope 100 50 --device "sim://kit?fault=gone_in_acquisition" --record fault.npz': 1,
            "lightning scope --device replay://fault.npz": 1,
        },
    ),
    "photonic-inference": Page(),
    "shared-lab": Page(
        after={"testbed sim examples": [OWN_NET]},
        places={"name: shared": f"name: shared{os.getpid()}", "apply shared": f"apply shared{os.getpid()}"},
    ),
    "describe-your-lab": Page(
        setup=[HOST_PYTHON],
        teardown=["testbed sim down labs/bench.yaml"],
    ),
    "put-a-datapath-on-a-board": Page(),
    "test-against-a-lab": Page(),
    "install": Page(),
}

LEFT_OUT: dict[str, dict[str, str]] = {
    "add-a-switch": {"^python -m ocs_drivers.testing": "the switch of the page is one that nobody makes"},
    "install": {
        "^make ": "is about a checkout",
        "^(pip|.venv-host/bin/pip) ": IN_AN_ENVIRONMENT,
    },
    "put-a-datapath-on-a-board": {
        "^(cd build|vivado)": "needs Vivado",
        "^python -m sim.twins.board": "needs pynq, whose numpy is below 2",
    },
}
