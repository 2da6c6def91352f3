"""What `zephon-ft verify` does: a straight run, runs with stops at other sizes, a check of the functions, a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zephon_ft.engine.ownership import divisors
from zephon_ft.engine.plan import Plan
from zephon_ft.errors import ConfigError
from zephon_ft.step_digest import combine
from zephon_ft.verify.chain import NEUTRAL, Leg, Place, chain_run, legs_of, straight_run
from zephon_ft.verify.compare import Difference, first_difference
from zephon_ft.verify.functions import ROWS, check_functions
from zephon_ft.verify.source import find
from zephon_ft.verify.summary import Summary

WORLDS = (1, 2, 4, 8)
PICTURE = "zephon-ft-verify.png"


@dataclass(frozen=True, slots=True)
class Verify:
    """What to verify.

    Attributes:
        recipe: see `zephon_ft.verify.source.find`.
        worlds: numbers of ranks; None is those of 1, 2, 4 and 8 that divide the lanes.
        threads: worker threads of each rank.
        cuts: stops of each run.
        steps: optimizer steps.
        out: folder for the picture, None for no picture.
    """

    recipe: str | None = None
    worlds: tuple[int, ...] | None = None
    threads: tuple[int, ...] = (1, 3, 8)
    cuts: int = 3
    steps: int = 16
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class _Chain:
    legs: list[Leg]
    taken: dict[Place, Summary]
    error: str


def run(options: Verify) -> int:
    """Verify; prints to stdout.

    Returns:
        exit status: 0, or 1 where any byte differs.

    Raises:
        ZephonError: a recipe that cannot be built or run, or a world size that does not fit it.
    """
    make, what = find(options.recipe)
    pipe = make().options(**NEUTRAL)
    plan = pipe.plan()
    worlds = list(options.worlds or (world for world in WORLDS if world in divisors(plan.lanes)))
    for world in worlds:
        pipe.options(rank=0, world_size=world).ranks()  # says which sizes fit
    print(f"verify      {what}: {plan.lanes} lanes, {plan.batches_per_step} batches of each in a step", flush=True)
    names, found = check_functions(plan)
    _print_functions(names, found)
    straight = straight_run(make, options.steps)
    in_step = plan.lanes * plan.batches_per_step
    steps = len(straight) // in_step
    if not steps:
        raise ConfigError(f"{what}: the data gives no full step; use fewer lanes, a smaller batch or more data")
    straight = straight[: steps * in_step]
    cuts = sorted({steps * (i + 1) // (options.cuts + 1) for i in range(options.cuts)} - {0, steps})
    print(f"straight    {steps} steps, {len(straight):,} batches on 1 rank and 1 thread", flush=True)
    chains = []
    for number in range(len(worlds)):
        legs = legs_of(number, worlds, list(options.threads), cuts, steps)
        chains.append(_Chain(legs, *chain_run(make, legs)))
        path = " -> ".join(f"{leg.world} x {leg.threads}" for leg in legs)
        stops = f"; a stop before step {', '.join(map(str, cuts))}" if cuts else ""
        print(f"resumed     {path} (ranks x threads{stops})", flush=True)
    digests = _digests(straight, chains, plan.batches_per_step)
    _print_table(digests, worlds, steps, cuts)
    difference = _first(plan, straight, chains)
    if options.out is not None:
        print(f"picture     {_picture(options.out, what, digests, worlds, chains, steps, cuts)}")
    if difference is not None:
        _print_difference(*difference)
    elif not found:
        sizes = f"{', '.join(map(str, worlds))} ranks, {', '.join(map(str, options.threads))} threads"
        print(f"verified    every byte of {steps} steps is the same ({sizes}, {len(cuts)} stops in each run)")
    return int(bool(found) or difference is not None)


def _digests(straight: list[Summary], chains: list[_Chain], rounds: int) -> dict[tuple[int, int], str]:
    """Step digests by (world, step), world 0 being the straight run; '' where a step is not complete."""
    out: dict[tuple[int, int], str] = {}
    places: dict[int, list[Place]] = {}
    for summary in straight:
        places.setdefault(summary.step, []).append((summary.lane, summary.index))
    whole = {(summary.lane, summary.index): summary for summary in straight}
    for step, wanted in places.items():
        out[0, step] = combine((*place, whole[place].digest) for place in wanted)
        for chain in chains:
            world = next(leg.world for leg in chain.legs if leg.begin <= step < leg.end)
            complete = all(place in chain.taken for place in wanted)
            digest = combine((*place, chain.taken[place].digest) for place in wanted) if complete else ""
            if out.get((world, step), out[0, step]) == out[0, step]:  # the first of several that differ stays
                out[world, step] = digest
    return out


def _first(plan: Plan, straight: list[Summary], chains: list[_Chain]) -> tuple[Difference, str] | None:
    """The first difference in order of steps, and which run it is in."""
    for summary in straight:
        for chain in chains:
            difference = first_difference(plan, summary, chain.taken.get((summary.lane, summary.index)))
            if difference is not None:
                leg = next(leg for leg in chain.legs if leg.begin <= summary.step < leg.end)
                resumed = f"resumed before step {leg.begin}" if leg.begin else "from the start"
                error = f"; {chain.error}" if chain.error else ""
                return difference, f"{leg.world} rank(s) x {leg.threads} thread(s), {resumed}{error}"
    return None


def _print_functions(names: Sequence[str], found: Sequence[str]) -> None:
    for text in found:
        print(f"DIFFERENT   {text}")
    if found:
        print("            A function must depend on its row alone (and on `rng`, if it has that parameter): no global")
        print("            random state, no time, no counter, nothing that it saw before.")
    else:
        print(f"functions   {len(names)} ran twice and in another order on {ROWS} rows: the same bytes", flush=True)


def _print_table(digests: dict[tuple[int, int], str], worlds: Sequence[int], steps: int, cuts: Sequence[int]) -> None:
    heads = [f"{world} rank{'s' if world > 1 else ''}" for world in worlds]
    print(f"\n{'step':>6}  {'straight run':<16}  " + "  ".join(f"{head:<9}" for head in heads).rstrip())
    for step in range(steps):
        if step in cuts:
            print(f"{'-- stop':>7}")
        cells = []
        for world in worlds:
            digest = digests.get((world, step))
            cells.append("" if digest is None else "OK" if digest == digests[0, step] else "DIFFERENT")
        print(f"{step:>6}  {digests[0, step][:16]}  " + "  ".join(f"{cell:<9}" for cell in cells).rstrip())
    print()


def _print_difference(difference: Difference, where: str) -> None:
    print(f"DIFFERENT   {difference.text}")
    print(f"  between   the straight run and {where}")
    for number, record in enumerate(difference.records):
        print(f"{'  records ' if number == 0 else '':<12}{record}")


def _picture(
    out: Path,
    what: str,
    digests: dict[tuple[int, int], str],
    worlds: Sequence[int],
    chains: Sequence[_Chain],
    steps: int,
    cuts: Sequence[int],
) -> Path:
    from zephon_ft.verify.picture import draw

    threads = {
        (leg.world, step): leg.threads for chain in chains for leg in chain.legs for step in range(leg.begin, leg.end)
    }
    path = out / PICTURE
    try:
        out.mkdir(parents=True, exist_ok=True)
        draw(what, digests, worlds, threads, steps, cuts).save(path)
    except OSError as error:
        raise ConfigError(f"--out: the picture cannot be written to {path}: {error.strerror or error}") from error
    return path
