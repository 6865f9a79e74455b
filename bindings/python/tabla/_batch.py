"""Batches: answers to many prompts, read by one thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

from ._answer import Answer, Piece, join_pieces, next_piece
from ._c import Struct, count, numbers
from ._errors import BusyError, check
from ._handle import Handle, interruptible
from ._model_handle import ModelHandle, Prompt
from ._native import ffi, lib
from ._option_types import GenerateOptions
from ._options import checked, generate_options, random_seed

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Batch(Handle, Iterator[Piece]):
    """Answers to many prompts, created by `Model.batch()`.

    At most `sequences` of `Model.load` answers are computed at the same time; the others wait.
    Iterating waits for the next piece of any answer; `Piece.index` is the index of the answer. The
    last piece of a failed answer has the `error`; the other answers continue.
    """

    def __init__(self, model: ModelHandle) -> None:
        super().__init__(lib.tabla_batch_new(model._pointer), lib.tabla_batch_free)
        self.model = model
        # Seeds of the answers in progress.
        self._seeds: dict[int, int] = {}
        # Held while an answer is added: another thread may read its first piece before its seed is stored.
        self._adding = threading.Lock()
        self._waiting_for_prefill: set[int] = set()
        self._piece = Struct("TablaPiece").c

    def add(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> int:
        """Starts an answer to a prompt without waiting. Returns the `index` of its pieces, which
        counts from 0. At most 512 answers can be in progress; a further one raises `BusyError`:
        read some to their end first."""
        return self._add(prompt, generate_options(checked(options, "add")))

    def _add(self, prompt: Prompt, options: Struct) -> int:
        tokens = self.model.tokenize(prompt) if isinstance(prompt, str) else prompt
        array = numbers("uint32_t", tokens, "prompt")
        number = ffi.new("size_t *")
        with self._adding:
            check(lib.tabla_batch_add(self._pointer, array, len(array), options.c, number))
            self._seeds[number[0]] = options.c.seed
            self._waiting_for_prefill.add(number[0])
        return int(number[0])

    def __next__(self) -> Piece:
        if not self._seeds:
            raise StopIteration
        # The first piece of an answer waits for prefill, which may take long.
        piece = interruptible(self._take, self.cancel) if self._waiting_for_prefill else self._take()
        self._waiting_for_prefill.discard(piece.index)
        return piece

    def _take(self) -> Piece:
        take, stats = lib.tabla_batch_next, lib.tabla_batch_stats
        piece = next_piece(self, self._piece, self._seed_of, take, stats)
        if piece.finish_reason is not None:
            del self._seeds[piece.index]
        return piece

    def _seed_of(self, index: int) -> int:
        with self._adding:
            return self._seeds[index]

    def cancel(self, index: int | None = None) -> None:
        """Cancels an answer, or all of them, from any thread."""
        for number in list(self._seeds) if index is None else [count(index, "index")]:
            lib.tabla_batch_cancel(self._pointer_or_null, number)

    def _cancel(self) -> None:
        self.cancel()


def answer_all(
    model: ModelHandle, prompts: Iterable[Prompt], arguments: Mapping[str, Any]
) -> list[Answer | Exception]:
    """Returns the answers in the order of their prompts; the exception in place of a failed one."""
    if isinstance(prompts, str):
        raise TypeError("prompts must be a list of prompts, not str")
    options = generate_options(arguments)
    answers: dict[int, Answer | Exception] = {}
    waiting = deque(enumerate(prompts))
    positions: dict[int, int] = {}
    pieces: dict[int, list[Piece]] = {}
    with Batch(model) as batch:
        while waiting or positions:
            while waiting:
                position, prompt = waiting[0]
                if "seed" not in arguments:
                    options.put("seed", random_seed())
                try:
                    positions[batch._add(prompt, options)] = position
                except BusyError:
                    if not positions:
                        raise
                    break
                except Exception as error:
                    answers[position] = error
                waiting.popleft()
            for piece in batch:
                pieces.setdefault(piece.index, []).append(piece)
                if piece.finish_reason is not None:
                    position = positions.pop(piece.index)
                    answers[position] = piece.error or join_pieces(pieces.pop(piece.index))
                    break
    return [answers[position] for position in range(len(answers))]
