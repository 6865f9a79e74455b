"""Routing of requests to the replica that has the longest prefix of the prompt in its cache."""

from __future__ import annotations

import hashlib
import json
import random
from collections import OrderedDict
from typing import Any, Dict, List, Optional

from ray.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

PREFIXES_MAX = 50_000
"""Maximum number of prefixes whose replica is remembered."""

PROMPT_PART = 512
"""Length in characters of the parts of a prompt whose prefixes are compared."""


def prefixes(model: str, messages: Optional[List[Any]], prompt: Optional[str]) -> List[bytes]:
    """Returns a digest of the model and each prefix, the shortest first: of the messages, or of parts of the
    prompt."""
    if messages:
        parts = [json.dumps(message, sort_keys=True) for message in messages]
    else:
        text = prompt or ""
        parts = [text[at : at + PROMPT_PART] for at in range(0, len(text), PROMPT_PART)]
    digest, found = hashlib.sha256(f"{model}\0".encode("utf-8", "surrogatepass")), []
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        found.append(digest.copy().digest())
    return found


class PrefixRouter(FIFOMixin, LocalityMixin, MultiplexMixin, RequestRouter):
    """Prefers the replica that had the longest prefix last, then replicas that have the model, then the less busy
    one of two."""

    def initialize_state(self, **_: Any) -> None:
        """Called by Ray after the constructor."""
        self._last: OrderedDict[bytes, ReplicaID] = OrderedDict()

    async def choose_replicas(
        self, candidate_replicas: List[RunningReplica], pending_request: Optional[PendingRequest] = None
    ) -> List[List[RunningReplica]]:
        """Returns the ranks of replicas, the preferred one first."""
        candidates: Dict[ReplicaID, RunningReplica] = {r.replica_id: r for r in candidate_replicas}
        if not candidates:
            return []
        ids = set(self.apply_multiplex_routing(pending_request)) & set(candidates) or set(candidates)
        pair = random.sample(sorted(ids, key=str), min(2, len(ids)))
        ranks = [[candidates[replica] for replica in pair]]
        for prefix in reversed(self._prefixes(pending_request)):
            replica = self._last.get(prefix)
            # Also if Ray does not know yet that this replica has the model: it learns that later than this router.
            if replica in candidates:
                return [[candidates[replica]], *ranks]
        return ranks

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remembers which replica has the prefixes."""
        for prefix in self._prefixes(pending_request):
            self._last[prefix] = replica_id
            self._last.move_to_end(prefix)
        while len(self._last) > PREFIXES_MAX:
            self._last.popitem(last=False)

    @staticmethod
    def _prefixes(request: Optional[PendingRequest]) -> List[bytes]:
        if request is None or not request.args:
            return []
        call, model = request.args[0], request.metadata.multiplexed_model_id
        return prefixes(model, getattr(call, "messages", None), getattr(call, "prompt", None))
