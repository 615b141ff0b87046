"""What a reader puts in place of names and addresses of a page, and the commands that cannot run here."""

from __future__ import annotations

from dataclasses import dataclass, field

PROGRAMS = frozenset(
    "testbed lightning countaction python python3 pip pytest make curl ssh export cd exec control control() dask vivado cp"
    " chmod mkdir . mpicc mpirun for lldpd lldpcli echo printf ssh-keygen ssh-keyscan sed cat head PYRO_SERIALIZERS_ACCEPTED=pickle .venv-host/bin/torchrun .venv-host/bin/pip .venv-clients/bin/dask".split()
)

@dataclass
class Page:
    setup: list = field(default_factory=list)
    places: dict = field(default_factory=dict)
    codes: dict = field(default_factory=dict)
    background: dict = field(default_factory=dict)
    before: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)
    teardown: list = field(default_factory=list)
    def replace(self, t):
        for a,b in self.places.items(): t=t.replace(a,b)
        return t
PAGES={}
LEFT_OUT={}
