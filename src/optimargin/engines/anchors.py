"""Where the blocks of parts are: persisted RDDs with a small record for every part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optimargin.engines.blocks import Facts, Lost
from optimargin.engines.cluster import ClusterError, Lease, selected

# (generation, parts, held) -> RDD that writes the blocks of those parts, each in a partition of
# its own, and gives their facts; what has to live as long is added to ``held``
Source = Callable[[int, Sequence[int], list[Any]], Any]

_ATTEMPTS = 3  # at writing blocks that are made of others


class Anchors:
    """Blocks as they were written first, and where they are now.

    An RDD of facts is kept by Spark where its block was written; that is why tasks go there, and
    when it is lost Spark computes it anew, which writes the block anew.  ``renew`` is for blocks
    that are lost while their facts are not.
    """

    def __init__(
        self, lease: Lease, source: Source, parts: Sequence[int], parent: Any = None
    ) -> None:
        self.lease, self.source, self.parent = lease, source, parent
        self.generation = lease.number()
        self._held = lease.hold(self, [])
        self._pieces: list[tuple[Any, list[int]]] = []  # RDDs, and the part of every partition
        lease.own(self, "generation", self.generation)
        self._pieces = [(self._made(parts), list(parts))]
        for _ in range(_ATTEMPTS):
            try:
                found = lease.run(self.over(parts).collect)
                break
            except Lost:
                self.mend(parts)
        else:
            raise ClusterError("Rows of some parts were lost again and again.")
        self.facts: dict[int, Facts] = {facts.part: facts for facts in found}
        lease.roots.update(facts.path.rpartition("/")[0] for facts in found)

    def over(self, parts: Sequence[int]) -> Any:
        """The facts of these parts."""
        wanted = set(parts)
        found = []
        for rdd, known in self._pieces:
            places = [k for k, part in enumerate(known) if part in wanted]
            if places:
                found.append(selected(rdd, places))
        return found[0] if len(found) == 1 else self.lease.sc.union(found)

    def renew(self, parts: Sequence[int]) -> None:
        """Have the blocks of these parts written anew, wherever the next call asks for them."""
        if not parts:
            return
        if self.parent is not None:
            self.parent.mend()  # what they are made of may be lost, too
        gone = set(parts)
        kept = []
        for rdd, known in self._pieces:
            places = [k for k, part in enumerate(known) if part not in gone]
            if places:
                kept.append((selected(rdd, places), [known[k] for k in places]))
        self._pieces = [*kept, (self._made(sorted(gone)), sorted(gone))]

    def mend(self, parts: Sequence[int]) -> None:
        """Have these blocks written anew after what they are made of was not there."""
        if self.parent is None:
            raise ClusterError("Rows of some parts were lost, and cannot be had again; fit again.")
        self.renew(parts)

    def _made(self, parts: Sequence[int]) -> Any:
        from pyspark import StorageLevel

        rdd = self.source(self.generation, parts, self._held)
        rdd.persist(StorageLevel.MEMORY_AND_DISK)
        self._held.append(rdd)
        return rdd
