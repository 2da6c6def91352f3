"""An operator of your own: few-shot examples, several records of one topic joined into one conversation.

    python examples/user_operator.py

An operator has two halves. The *accumulator* is serial: it takes the records of a lane one at a time, in order, and
decides which belong together. The *work function* is the expensive half: any worker runs it on a group, in any order.
So the result depends on neither the number of workers nor on which is faster.

An accumulator lives for one flush interval of one lane and is then dropped, so `finish` must give back what is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zephon_ft import (
    Accumulator,
    AccumulatorContext,
    Dataset,
    Operator,
    Pipeline,
    Record,
    StaticMixtureWorkSource,
    WorkContext,
)
from zephon_ft.random import mix


@dataclass(frozen=True)
class FewShot(Operator):
    """Join `shots` records with the same value of `topic` into one.

    Records have `question` and `answer`; the joined one has `topic`, `text` and `shots`.
    """

    topic: str
    shots: int = 3

    name = "few_shot"
    stateful = True

    def accumulator(self) -> Accumulator:
        """One for each flush interval of each lane."""
        return ByTopic(self.topic, self.shots)

    def bind(self, context: WorkContext) -> Any:
        """The work function of one worker thread; what it needs for itself (a tokenizer, a buffer) is made here."""
        count, topic = context.count, self.topic

        def work(group: list[Record]) -> Record:
            lines = [f"Q: {record.fields['question']}\nA: {record.fields['answer']}" for record in group]
            count("few_shot: joined", len(group))  # shows in `stream.stats()`
            first = group[0]
            fields = {topic: first.fields[topic], "text": "\n\n".join(lines), "shots": len(group)}
            return Record(first.key, first.position, fields)

        return work

    def recipe(self) -> dict[str, Any]:
        """Everything that decides the output: it is compared when a run is resumed."""
        return {"topic": self.topic, "shots": self.shots}


class ByTopic(Accumulator):
    """Keeps the records of each topic until there are enough of them."""

    def __init__(self, topic: str, shots: int) -> None:
        self._topic, self._shots = topic, shots
        self._waiting: dict[Any, list[Record]] = {}

    def open(self, context: AccumulatorContext) -> None:
        """Called once, before the first record. Choices are keyed by the interval, never by time or `random`."""
        self._drop = context.drop
        self._key = mix(context.seed, context.lane << 32 | context.flush)
        self._groups = 0

    def push(self, unit: Record) -> Iterable[list[Record]]:
        """Take in the next record; return the groups that are complete now."""
        waiting = self._waiting.setdefault(unit.fields[self._topic], [])
        waiting.append(unit)
        if len(waiting) < self._shots:
            return ()
        del self._waiting[unit.fields[self._topic]]
        self._groups += 1
        turn = mix(self._key, self._groups) % len(waiting)  # which of them comes first
        return ([*waiting[turn:], *waiting[:turn]],)

    def finish(self) -> Iterable[list[Record]]:
        """The interval ends: return what is held, or report it as dropped; nothing may get lost."""
        rest = []
        for waiting in self._waiting.values():
            if len(waiting) > 1:
                rest.append(waiting)
            else:
                self._drop(waiting[0], "few_shot: alone")
        return rest


def main() -> None:
    """Sums and products, mixed in the data, apart in the result."""
    topics = {"sum": lambda a, b: f"{a} + {b} = {a + b}", "product": lambda a, b: f"{a} x {b} = {a * b}"}
    rows = []
    for i in range(200):
        topic = "product" if i % 3 == 0 else "sum"
        left, _, right = topics[topic](i % 13, i % 7).partition("=")
        rows.append({"topic": topic, "question": f"{left}= ?", "answer": right.strip()})
    source = StaticMixtureWorkSource([Dataset.from_rows("maths", rows)], seed=1, epochs=1)
    pipeline = Pipeline(source, lanes=2, flush_every=50).apply(FewShot("topic", shots=3)).batch(8)
    with iter(pipeline) as stream:
        batches = list(stream)
        print(batches[0].columns["text"][0], end="\n\n")
        print(f"{len(batches)} batches; {stream.stats()['counts']}")
    print("the same with one worker and with eight:", end=" ")
    digests = [[batch.digest() for batch in pipeline.options(workers=n)] for n in (1, 8)]
    print(digests[0] == digests[1] == [batch.digest() for batch in batches])


if __name__ == "__main__":
    main()
