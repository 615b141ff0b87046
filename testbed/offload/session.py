"""From a script to its profile: workers are found or started, and let go of at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightbed.wording import install_extra
from testbed.errors import OffloadError
from testbed.offload.configuration import Choice, Configuration
from testbed.offload.engine import Engine, InProcess
from testbed.offload.profile import Narrator, Settings
from testbed.offload.script import load_script
from testbed.offload.store import Profile


def profile_script(
    name: str, configuration: Configuration, choice: Choice, narrator: Narrator | None = None
) -> tuple[Profile, bool]:
    """Return the profile of a script, and whether its step is simulated. Raises `OffloadError`."""
    try:
        from testbed.offload.loader import OffloadedLoader
    except ImportError as error:
        raise OffloadError(f"profiling needs {error.name}: {install_extra('offload')}") from error
    script = load_script(name)
    with open_workers(choice, configuration) as engine:
        loader = OffloadedLoader(
            script.dataset,
            script.transform,
            batch_size=script.batch_size,
            collate=script.collate,
            seed=script.seed,
            threads=configuration.threads,
            engine=engine,
            rule=configuration.rule(),
        )
        try:
            return loader.tune(script.step, _settings(configuration, narrator)), script.is_simulated
        finally:
            loader.close()


def _settings(configuration: Configuration, narrator: Narrator | None) -> Settings:
    return Settings(
        batches=configuration.batches,
        rounds=configuration.rounds,
        warm_up=configuration.warm_up,
        threshold=configuration.threshold,
        epochs=configuration.epochs,
        store=Path(configuration.store) if configuration.store else None,
        model=configuration.model,
        narrator=narrator,
    )


@contextmanager
def open_workers(choice: Choice, configuration: Configuration) -> Iterator[Engine]:
    """Provide the engine that was chosen; without a choice workers of this machine, as many as are asked for."""
    if choice.in_process:
        yield InProcess(choice.workers or 1)
        return
    from testbed.offload.dask_engine import DaskEngine

    certificates = configuration.certificates()
    if choice.scheduler is not None:
        yield DaskEngine(choice.scheduler, tls=certificates, weights=configuration.weights)
        return
    if choice.lab is not None:
        from testbed.offload.lab_workers import engine_on_lab

        with engine_on_lab(
            choice.lab, choice.runs, choice.workers, tls=certificates, weights=configuration.weights
        ) as engine:
            yield engine
        return
    from testbed.offload.local_workers import workers_here

    with workers_here(choice.workers or 1, certificates) as address:
        yield DaskEngine(address, tls=certificates, weights=configuration.weights)
