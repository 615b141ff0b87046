"""The executor of chains of dense layers: bytes go through one compiled function, everything else is interpreted."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel
from lightning.execution.chains.chain import COUNTERS, Chain, counted
from lightning.execution.inputs import as_array, check_keys
from lightning.execution.interface import Answers, Fidelity
from lightning.execution.interpreter import Interpreter


class FusedExecutor:
    """Answers bytes by a `Chain`, and data of other types by the interpreter, which gives the same."""

    def __init__(self, chain: Chain, interpreter: Interpreter) -> None:
        self.model: CompiledModel = interpreter.model
        self.fidelity: Fidelity = interpreter.fidelity
        self.chain = chain
        self.interpreter = interpreter

    def run(self, inputs: npt.ArrayLike, keys: npt.ArrayLike | None = None) -> Answers:
        """Answer as `Interpreter.run` does: the same scores, counters and errors."""
        array = as_array(inputs)
        if array.dtype != np.uint8 or not self._fits(array.shape):
            return self.interpreter.run(array, keys)
        named = check_keys(keys, len(array))
        scores = np.empty((len(array), self.chain.outputs), np.float32)
        counters = np.zeros(len(COUNTERS), np.int64)
        raw = np.ascontiguousarray(array).reshape(len(array), -1)
        self.chain.answer_many(raw, named, scores, counters)
        shaped = scores.reshape(len(array), *self.model.network.output_shape)
        clipped = {"clipped_readouts": 0} if self.fidelity == "noisy" else {}  # `fits` has seen to it
        return Answers(
            shaped, self.interpreter.cycles, {**counted(counters, wrap=self.model.wrap), **clipped}
        )

    def warm(self) -> None:
        """Touch both ways."""
        self.chain.warm()
        self.interpreter.warm()

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether these are inputs as the network takes them, or images for a network that takes rows."""
        wanted = self.model.network.input_shape
        given = shape[1:]
        return (
            bool(shape)
            and shape[0] > 0
            and (given == wanted or (len(wanted) == 1 and prod(given) == wanted[0]))
        )
