"""Pages that a test reads: real values for names and addresses on them, and the commands that cannot run here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

PROGRAMS = frozenset(
    (
        *(
            "testbed",
            "lightning",
            "countaction",
            "python",
            "python3",
            "pip",
            "pytest",
            "dask",
            "vivado",
            "make",
        ),
        *(
            "curl",
            "ssh",
            "ssh-keygen",
            "ssh-keyscan",
            "export",
            "cd",
            "cp",
            "sed",
            "chmod",
            "mkdir",
            "echo",
            ".",
        ),
        *("exec", "control", "for", "mpicc", "lldpd", ".venv-host/bin/torchrun", ".venv-host/bin/pip"),
        *(".venv-clients/bin/dask", "PYRO_SERIALIZERS_ACCEPTED=pickle"),
    )
)
"""First words of lines that are commands, in blocks that do not mark them by `$ `."""

NET = f"10.{70 + os.getpid() % 20}.{os.getpid() % 250}"
"""Where labs of these tests stand, in place of 10.99.0: another run of this machine may have that one."""
LAB = "labs/testbed12.yaml"
MARK_OF_RUN = f"-{os.getpid()}"
"""Names of labs end in it, for the same reason; by it labs are found that a page does not end itself."""
OWN_NET = f"sed -i 's/10[.]99[.]0/{NET}/; s/^name: .*/&{MARK_OF_RUN}/' labs/*.yaml"
EXAMPLES = ["testbed sim examples", OWN_NET]
HOST_PYTHON = 'ln -s "$HOST_ENVIRONMENT" .venv-host'
UP = ["testbed sim up labs/testbed12.yaml --hosts model --move"]
SSH_OPTIONS = (
    "-i ~/.local/state/lightbed/id_ed25519 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
)
DOWN = ["testbed sim down labs/testbed12.yaml"]
IN_AN_ENVIRONMENT = "installs from an index; the wheel is built and installed without one"
_LAB_NAME = re.compile(r"(?<![/\w])(testbed12|bench|shared)(?=/ocs| |$)|(?<=name: )shared", re.MULTILINE)


@dataclass
class Page:
    """Knowledge and things that a reader has beyond the page."""

    setup: list[str] = field(default_factory=list)
    """Commands before the first: they make what the page says that its reader has."""
    places: dict[str, str] = field(default_factory=dict)
    """Texts of the page, and what the reader has in their place."""
    codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Commands that end with another exit code than 0, as the page says or shows: that of each time."""
    background: tuple[str, ...] = ()
    """Commands that go on until somebody ends them."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """Commands that the page's prose asks for before one of its commands."""
    after: dict[str, list[str]] = field(default_factory=dict)
    teardown: list[str] = field(default_factory=list)
    needs: tuple[str, ...] = ()
    """Markers of the test of the page, beside those of all pages."""

    def replace(self, text: str) -> str:
        """Return a text of the page with what the reader has in place of its names and addresses."""
        for shown, meant in {**self.places, "10.99.0.": f"{NET}."}.items():
            text = text.replace(shown, meant)
        return _LAB_NAME.sub(rf"\g<0>{MARK_OF_RUN}", text)


TRAINED = [  # the first two steps of the tutorial, which the page begins behind
    "cp $PAGES/photonic-inference/train.py .",
    "python train.py",
    "lightning compile digits.npz --samples digits -o digits.lng",
]

POLATIS = "polatis+tl1://127.0.0.1:47907"

TL1_BY_HAND = (  # `timeout` ends it, and says so
    "exec 4<>/dev/tcp/127.0.0.1/44885; printf 'ACT-USER::admin:1::root;RTRV-PATCH:::2:;' >&4; timeout 1 cat <&4"
)

PAGES: dict[str, Page] = {
    "count-action": Page(
        needs=("hdl",), codes={"countaction sim broken.ca -P num_DACs=2 -s beats.csv": (1,)}
    ),
    "describe-your-lab": Page(needs=("kernel",), setup=[HOST_PYTHON]),
    "first-run": Page(
        needs=("kernel",),
        setup=[HOST_PYTHON],
        after={
            "testbed sim examples": [OWN_NET],
        },
        places={"lb7a32b3": "labs/testbed12.yaml"},
        codes={"testbed plan labs/testbed12.yaml": (2,), "testbed verify labs/testbed12.yaml": (0, 2)},
    ),
    "infer-in-the-lab": Page(),
    "install": Page(),
    "map-the-fibres": Page(
        needs=("kernel",),
        setup=[HOST_PYTHON],
        after={"testbed sim examples": [OWN_NET]},
        codes={"testbed discover labs/bare.yaml -o labs/wired.yaml": (2,)},
    ),
    "offload-preprocessing": Page(),
    "operate": Page(
        setup=[*EXAMPLES, *UP, "testbed apply labs/testbed12.yaml"],
        places={" LAB": f" {LAB}"},
        teardown=DOWN,
    ),
    "photonic-inference": Page(),
    "photonic-kit": Page(
        codes={
            'lightning multiply 100 50 --device "sim://kit?vary=yes&seed=7"': (1, 0),
            'lightning scope 100 50 --device "sim://kit?fault=gone_in_acquisition" --record fault.npz': (1,),
            "lightning scope --device replay://fault.npz": (1,),
        },
    ),
    "plan-a-job": Page(
        codes={"testbed plan labs/testbed12.yaml --plan dlrm.json": (2,)},
        after={"testbed sim examples": [OWN_NET]},
        places={
            "tcp://10.0.0.1:8786": "tcp://127.0.0.1:48786",
            "dask scheduler ": "dask scheduler --port 48786 --no-dashboard ",
            "testbed sim up labs/testbed12.yaml": UP[0],
        },
        background=(
            "dask scheduler ",
            "dask worker ",
        ),
        teardown=DOWN,
    ),
    "put-a-datapath-on-a-board": Page(needs=("hdl",)),
    "run-a-model-on-hardware": Page(needs=("hdl",), setup=TRAINED, places={"qick://10.0.0.7": "sim://kit"}),
    "serve-a-model": Page(
        setup=TRAINED,
        places={
            "8080": "48080",
            "udp 9000": "udp 49000",
            "127.0.0.1:9000": "127.0.0.1:49000",
            "serve digits.lng": "serve digits.lng --port 48080",
        },
        background=("lightning serve digits.lng --udp 9000",),
    ),
    "share-a-lab": Page(
        needs=("kernel",),
        setup=[HOST_PYTHON],
        after={
            "testbed sim examples": [OWN_NET],
            'testbed lease request labs/testbed12.yaml --ttl 2h --reason "one-way rings"': [
                "LEASE=$(testbed lease list labs/testbed12.yaml | cut -d ' ' -f 1)"
            ],
        },
        before={'testbed lease request labs/testbed12.yaml --ttl 2h --reason "one-way rings"': UP},
        places={"20261124T090000-1f2e3d": "$LEASE"},
        teardown=DOWN,
    ),
    "share-a-lab-through-a-service": Page(
        codes={"testbed plan labs/testbed12.yaml": (2,)},
        setup=[*EXAMPLES, *UP],
        places={
            "8080": "48081",
            "LIGHTBED_TOKEN=...": "LIGHTBED_TOKEN=$ADMIN",
            "revoke ID": "revoke $(testbed token list --json | jq -r .tokens[0].id)",
            "HASH": "$(testbed audit --verify | sed 's/.* //')",
        },
        before={
            "export LIGHTBED_SERVER=http://127.0.0.1:8080 LIGHTBED_TOKEN=...": [
                "ADMIN=$(testbed token create --role admin --name eve | head -n 1)"
            ]
        },
        background=(
            "testbed serve --lab labs/testbed12.yaml --port 8080 --json",
            "curl -N http://127.0.0.1:8080/v1/events -H 'Last-Event-ID: 0'",
        ),
        teardown=["export LIGHTBED_SERVER=", *DOWN],
    ),
    "shared-lab": Page(after={"testbed sim examples": [OWN_NET]}),
    "test-against-a-lab": Page(),
    "train-with-noise": Page(setup=TRAINED),
    "try-a-client-on-a-twin": Page(
        codes={
            TL1_BY_HAND: (124,),
        },
        background=("testbed sim switch ",),
        places={
            "polatis --size 16x16": "polatis --size 16x16 --port tl1=44885 --port rest=34237 --port control=41589",
            "scpi=5025": "scpi=45025",
            "control=7025": "control=47025",
            "tcp/127.0.0.1/5025": "tcp/127.0.0.1/45025",
            "ssh -p 10022": "ssh -p 40022",
            "127.0.0.1:10022": "127.0.0.1:40022",
        },
        before={
            "testbed switch 'rome+cli://127.0.0.1:10022?poll_s=0.1' connect E1:W2": [
                "testbed sim switch rome --port cli=40022 --speed 100 > rome < <(sleep 600) &",
                "until [ -s rome ]; do sleep 0.1; done",
            ]
        },
    ),
    "use-a-real-switch": Page(
        codes={"testbed switch polatis+tl1://192.0.2.7 apply --file plan.txt --dry-run": (2,)},
        setup=[
            "mkdir -p ~/.config/lightbed; touch ~/.config/lightbed/credentials.toml",
            "testbed sim switch polatis --size 16x16 --port tl1=47907 > polatis < <(sleep 600) &",
            "testbed sim switch calient --size 320x320 --port tl1=47908 > calient < <(sleep 600) &",
            "until [ -s polatis -a -s calient ]; do sleep 0.1; done",
        ],
        places={
            "polatis+tl1://192.0.2.7": POLATIS,
            "calient+tl1://192.0.2.8": "calient+tl1://127.0.0.1:47908",
            "USER=operator": "USER=admin",
            "PASSWORD=...": "PASSWORD=root",
            "1c77edc4eb171686": f"$(testbed switch {POLATIS} read --json | jq -r .revision)",
        },
        before={
            "python -m ocs_drivers.testing calient+tl1://192.0.2.8 --free-ports 1-8:321-328 --record switch8.json": [
                "unset LIGHTBED_OCS_USER LIGHTBED_OCS_PASSWORD"
            ]
        },
        background=("testbed switch polatis+tl1://192.0.2.7 watch",),
    ),
    "use-the-kit-on-a-board": Page(
        places={"qick://10.0.0.7": "sim://kit", "8888": "48888"},
        background=("python -m sim.twins.rfsoc sim://kit --port 8888",),
    ),
    "watch-the-light": Page(
        setup=[*EXAMPLES, *UP, "testbed apply labs/testbed12.yaml"],
        places={" LAB": f" {LAB}"},
        background=("testbed drift LAB --every 5m",),
        teardown=DOWN,
    ),
    "when-something-breaks": Page(
        setup=[
            HOST_PYTHON,
            *EXAMPLES,
            *UP,
            "testbed apply labs/testbed12.yaml",
            "testbed sim switch rome --port cli=40023 --speed 100 > rome < <(sleep 600) &",
            "until [ -s rome ]; do sleep 0.1; done",
        ],
        places={" LAB": f" {LAB}", "--epoch N": "--epoch 1", "ADDRESS": "rome+cli://127.0.0.1:40023"},
        teardown=DOWN,
    ),
    "find-a-slow-rank": Page(
        setup=[*EXAMPLES, *UP, "testbed apply labs/testbed12.yaml"],
        places={" LAB": f" {LAB}"},
        teardown=DOWN,
    ),
    "run-a-program": Page(
        needs=("kernel",),
        setup=[HOST_PYTHON],
        after={"testbed sim examples": [OWN_NET]},
        teardown=DOWN,
    ),
    "your-own-programs": Page(
        needs=("kernel",),
        setup=[HOST_PYTHON],
        after={"testbed sim examples": [OWN_NET]},
        places={
            "ssh -i ~/.local/state/lightbed/id_ed25519 root@": "ssh -n root@",
            "ssh ": f"ssh {SSH_OPTIONS} ",
        },
        teardown=DOWN,
    ),
}

ON_A_HOST = "is typed on a simulated host: tests/operate/test_your_own_programs.py does"
A_REAL_LAB = "moves a real lab"

LEFT_OUT: dict[str, dict[str, str]] = {
    "add-a-switch": {"^python -m ocs_drivers.testing": "the switch of the page is one that nobody makes"},
    "first-run": {
        "^make |^[.] .venv": "is about a checkout",
        "^testbed demo": "runs for minutes: tests/cli/test_demo.py",
    },
    "install": {
        "^make ": "is about a checkout",
        "^(pip|.venv-host/bin/pip) ": IN_AN_ENVIRONMENT,
    },
    "infer-in-the-lab": {
        "--really-move": A_REAL_LAB,
        "^testbed demo": "runs for minutes: tests/cli/test_demo.py",
    },
    "find-a-slow-rank": {
        "^testbed (nccl|job|runs explain)": "needs a slow link: tests/measure/test_planted_slow_downs.py",
    },
    "map-the-fibres": {"--really-move": A_REAL_LAB},
    "put-a-datapath-on-a-board": {
        "^(cd build|vivado)": "needs Vivado",
        "^python -m sim.twins.board": "needs pynq, whose numpy is below 2",
    },
    "run-a-model-on-hardware": {"pynq://": "needs a board"},
    "share-a-lab": {"examples/shared_jobs.yaml": "is a file of the checkout: tests/cli/test_schedule.py"},
    "try-a-client-on-a-twin": {
        "^(ssh|ocs1)": "asks for a password at the terminal: tests/sim/frontends logs in",
    },
    "use-a-real-switch": {
        "^ssh-keygen": "needs the key of whoever signed a record",
        "^ssh-keyscan": "asks a real device",
        "manual:": "asks a person",
        "basement.yaml": A_REAL_LAB,
    },
    "use-the-kit-on-a-board": {
        "^(PYRO|python -c)": "runs on a board",
        "^lightning calibrate": "needs instruments: tests/lightning/kit/instruments",
    },
    "when-something-breaks": {"--gpu": "needs hosts with several GPUs: tests/operate/test_failure_rules.py"},
    "your-own-programs": {
        "^(mkdir|echo|lldp|[.] |.venv|mpi|for )": ON_A_HOST,
    },
}
