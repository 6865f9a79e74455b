"""Answers to many prompts, which one thread takes as they come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

from ._answer import Answer, Piece, next_piece, whole
from ._c import Struct, numbers
from ._errors import BusyError, check
from ._handle import Handle, interruptible
from ._model_handle import ModelHandle, Prompt
from ._native import ffi, lib
from ._options import GenerateOptions, generate_options, known

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Batch(Handle, Iterator[Piece]):
    """Answers to many prompts, made by `Model.batch()`.

    As many as `sequences` of `Model.load` go on together, and the others wait for their turn. Iterating
    waits for the next piece of whichever answer has one; `Piece.index` says of which. One that fails ends
    with a piece that has the `error`, and the others go on.
    """

    def __init__(self, model: ModelHandle) -> None:
        super().__init__(lib.tabla_batch_new(model._pointer), lib.tabla_batch_free)
        self.model = model
        self._under_way: set[int] = set()
        self._silent: set[int] = set()
        self._piece = Struct("TablaPiece").c

    def add(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> int:
        """Begins to answer a prompt and waits for nothing. Returns the `index` of its pieces, which counts
        from 0. Where 512 answers are under way it is a `BusyError`: take some to their end first."""
        return self._add(prompt, generate_options(known(options, "add")))

    def _add(self, prompt: Prompt, options: Struct) -> int:
        tokens = self.model.tokenize(prompt) if isinstance(prompt, str) else prompt
        array = numbers("uint32_t", tokens, "prompt")
        number = ffi.new("size_t *")
        check(lib.tabla_batch_add(self._pointer, array, len(array), options.c, number))
        self._under_way.add(number[0])
        self._silent.add(number[0])
        return int(number[0])

    def __next__(self) -> Piece:
        if not self._under_way:
            raise StopIteration
        # The first piece of an answer waits for its prompt.
        piece = interruptible(self._take, self.cancel) if self._silent else self._take()
        self._silent.discard(piece.index)
        return piece

    def _take(self) -> Piece:
        piece = next_piece(self, self._piece, lib.tabla_batch_next, lib.tabla_batch_stats)
        if piece.finish_reason is not None:
            self._under_way.discard(piece.index)
        return piece

    def cancel(self, index: int | None = None) -> None:
        """Stops an answer, or all of them, from any thread."""
        for number in list(self._under_way) if index is None else [index]:
            lib.tabla_batch_cancel(self._pointer_or_null, number)


def answer_all(
    model: ModelHandle, prompts: Iterable[Prompt], arguments: Mapping[str, Any]
) -> list[Answer | Exception]:
    """The answers in the order of their prompts; in the place of one that failed stands why."""
    if isinstance(prompts, str):
        raise TypeError("prompts is a str, not a list of them")
    options = generate_options(arguments)
    answers: dict[int, Answer | Exception] = {}
    waiting = deque(enumerate(prompts))
    places: dict[int, int] = {}
    pieces: dict[int, list[Piece]] = {}
    with Batch(model) as batch:
        while waiting or places:
            while waiting:
                place, prompt = waiting[0]
                try:
                    places[batch._add(prompt, options)] = place
                except BusyError:
                    if not places:
                        raise
                    break
                except Exception as error:
                    answers[place] = error
                waiting.popleft()
            for piece in batch:
                pieces.setdefault(piece.index, []).append(piece)
                if piece.finish_reason is not None:
                    place = places.pop(piece.index)
                    answers[place] = piece.error or whole(pieces.pop(piece.index))
                    break
    return [answers[place] for place in range(len(answers))]
