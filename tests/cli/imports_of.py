"""Run commands of one program in this process, and print what they imported and by which chain, as JSON.

python imports_of.py PACKAGE WORDS...        one command
python imports_of.py PACKAGE --every-help    `--help` of the program, its commands and theirs
"""

from __future__ import annotations

import sys
from importlib import import_module

CHAINS: dict[str, list[str]] = {}
BEFORE = frozenset(sys.modules)


class Recorder:
    """A finder that finds nothing, but notes which modules were being imported when a new name is looked for."""

    def find_spec(self, name, path=None, target=None):
        if name not in CHAINS:
            chain, frame = [], sys._getframe(1)
            while frame is not None:
                importer = frame.f_globals.get("__name__", "")
                if "importlib" not in importer and importer not in chain[-1:]:
                    chain.append(importer)
                frame = frame.f_back
            CHAINS[name] = chain


def every_help(app):
    yield ["--help"]
    for name, command in app.commands.items():
        yield [name, "--help"]
        address = ["polatis+scpi://10.99.0.2"] if name == "switch" else []
        for under in getattr(command, "commands", ()):
            yield [name, *address, under, "--help"]


def main(package, *words):
    sys.meta_path.insert(0, Recorder())
    room = import_module(package)
    run_app = getattr(room, "run_app", None) or import_module(f"{package}.app").run_app
    if words == ("--every-help",):
        build_app = getattr(room, "build_app", None) or import_module(f"{package}.app").build_app
        codes = {run_app(each) for each in every_help(build_app())}
    else:
        codes = {run_app(list(words))}
    loaded = {name for name, module in sys.modules.items() if type(module).__name__ != "_LazyPackage"}
    found = {name: CHAINS.get(name, []) for name in sys.modules if name in loaded - BEFORE}
    import json

    print("\n" + json.dumps({"codes": sorted(codes), "imported": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
