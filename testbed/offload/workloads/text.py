"""Workload: tokens of documents from docstrings of the standard library, with a vocabulary trained at import."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from testbed.offload.workloads.timed import TimedStep

VOCABULARY_SIZE = 4000
TOKENS_PER_TEXT = 256
TEXT_COUNT = 2048
MODULE_NAMES = (
    "argparse",
    "collections",
    "csv",
    "decimal",
    "inspect",
    "json",
    "logging",
    "os",
    "random",
    "statistics",
)


class Documents:
    """Excerpts of the docstrings of modules of Python's standard library."""

    def __init__(self) -> None:
        modules = [import_module(name) for name in MODULE_NAMES]
        texts = [
            text for module in modules for member in vars(module).values() if (text := inspect.getdoc(member))
        ]
        self.text = "\n".join(texts)

    def __len__(self) -> int:
        """Return the number of documents."""
        return TEXT_COUNT

    def __getitem__(self, index: int) -> str:
        """Return a document of up to 4,000 characters."""
        begin = index * 997 % max(1, len(self.text) - 4000)
        return self.text[begin : begin + 4000]


class TokenTexts:
    """Byte-pair tokenizer that truncates or pads a document to `TOKENS_PER_TEXT` tokens."""

    def __init__(self, documents: Documents) -> None:
        tokenizer = Tokenizer(models.BPE(unk_token="?"))  # noqa: S106 - a token, no password
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE, special_tokens=["?", "."], show_progress=False
        )
        tokenizer.train_from_iterator([documents[number] for number in range(100)], trainer)
        tokenizer.enable_truncation(TOKENS_PER_TEXT)
        tokenizer.enable_padding(length=TOKENS_PER_TEXT)
        self.tokenizer = tokenizer

    def __call__(self, document: str) -> Any:
        """Return the token ids as a tensor of shape (TOKENS_PER_TEXT,)."""
        return torch.tensor(self.tokenizer.encode(document).ids)


dataset = Documents()
transform = TokenTexts(dataset)
batch_size = 64
step = TimedStep(0.02)
simulated = True
