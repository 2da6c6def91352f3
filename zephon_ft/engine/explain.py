"""explain: a compiled pipeline in words."""

from __future__ import annotations

from zephon_ft.engine.options import Options
from zephon_ft.engine.plan import SOURCE_ROWS_PER_FLUSH, Plan


def explain(plan: Plan, options: Options) -> str:
    """What runs together on one worker, what is held, how often it flushes, and what bounds it."""
    mixture = plan.source.mixture
    total = sum(mixture.values())
    lines = ["source"]
    for dataset, fields in zip(plan.source.datasets, plan.fields, strict=True):
        rows = sum(shard.rows for shard in dataset.shards)
        read = "all fields" if fields is None else ", ".join(sorted(fields))
        lines.append(
            f"  {dataset.name}: {dataset.format}, {len(dataset.shards)} shards, {rows:,} rows, "
            f"{mixture[dataset.name] / total:.1%} of records, reads {read}"
        )
    epochs = "endless" if plan.source.epochs is None else f"{plan.source.epochs} epochs"
    lines.append(f"  {plan.lanes} lanes, {epochs}, seed {plan.source.seed}")
    for segment in plan.segments:
        parts = [step.operator.name for step in segment.steps]
        if segment.head is not None:
            parts.insert(0, segment.head.operator.name + " (in order, per lane)")
        elif segment.index == 0:
            parts.insert(0, "read")
        cap = f", at most {segment.parallelism} at once" if segment.parallelism else ""
        lines.append(f"on one worker{cap}: " + " -> ".join(parts))
    lines.append(f"{plan.batch.name}: {plan.batches_per_step} of each lane per step")
    if plan.stateful:
        rows = SOURCE_ROWS_PER_FLUSH * plan.flush_every
        lines.append(f"flush every {plan.flush_every:,} records of a lane (or {rows:,} source rows)")
    else:
        lines.append("no stateful operator: no flush, a position is (row, child)")
    ahead = options.resolved_prefetch(bool(plan.kinds), plan.records_per_batch, plan.tokens_per_batch)
    lines.append(
        f"{options.resolved_workers()} workers, {ahead} batches made ahead, "
        f"memory budget {options.resolved_budget() / 2**20:,.0f} MiB"
    )
    return "\n".join(lines)
