"""A comparison as text."""

from __future__ import annotations

from zephon_ft.ab.compare import CPU, RATE, Line, Report, Spread
from zephon_ft.ab.equality import TOLERANCE

STEADY = (0.75, 1.33)  # the rate of the second half of a window over that of the first


def table(report: Report) -> str:
    """The report for a terminal: what was done where, a line for each side and number of workers, shares, versions."""
    rate = RATE[report.mode]
    out = [f"{report.mode}: {_does(report)}", f"  {report.machine}; load {report.load[0]:.2f} to {report.load[1]:.2f}"]
    out += [f"  {name}: {value}" for name, value in report.data.items()]
    out.append(
        f"  {report.rounds} rounds, each {report.seconds:g} s after {report.warmup:g} s, interleaved; "
        "median (least to most)"
    )
    out += ["", *_grid([_head(rate), *(_cells(report, line, rate) for line in report.lines)])]
    shares = [(line, name, share) for line in report.lines for name, share in line.shares.items()]
    if shares:
        out.append("")
    for line, name, share in shares:
        by_cpu = f"by CPU time {_spread(line.cpu_shares[name], 3)}"
        out.append(f"  {line.side}, {line.workers} workers: {_spread(share, 3)} of the rate of {name}; {by_cpu}")
    out += ["", *_drift(report), *_who(report), "", *_verdict(report)]
    return "\n".join(out)


def _does(report: Report) -> str:
    job = report.job
    return {
        "fetch": f"read, decode and resize to {job['size']} x {job['size']}, one sample at a time",
        "full": f"decode, tokenize, mask, pack({job['pack_length']}), batches of {job['batch']} rows with patches",
        "text": f"tokenize and pack({job['pack_length']}) text, batches of {job['batch']} rows",
    }[report.mode] + f"; {job['lanes']} lanes, seed {job['seed']}"


def _head(rate: str) -> list[str]:
    other = ["images/s", "tokens/s"] if rate == "samples/s" else ["samples/s"]
    heads = ["side", "workers", rate, *other, "ratio", "by CPU time", "CPU s/1,000", "peak MB", "first s"]
    return [*heads, "faults/image"]


def _cells(report: Report, line: Line, rate: str) -> list[str]:
    f = line.figures
    others = ["images/s", "tokens/s"] if rate == "samples/s" else ["samples/s"]
    workers = "-" if report.sides[line.side]["runner"] == "inline" else str(line.workers)
    cells = [line.side, workers, _spread(f[rate]), *(_number(f[name].median) for name in others)]
    if line.side == report.baseline:
        cells += ["baseline", ""]
    else:
        cells += [_spread(line.ratio, 2), f"{line.cpu_ratio.median:.2f}"]
    cells += [_number(f[CPU].median), _number(f["peak memory MB"].median)]
    return [*cells, f"{f['first s'].median:.2f}", _number(f["faults per image"].median)]


def _grid(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _drift(report: Report) -> list[str]:
    """Sides that were not yet running evenly when they were measured."""
    low, high = STEADY
    found = [(line, line.figures["drift"].median) for line in report.lines]
    return [
        f"  {line.side}, {line.workers} workers: not steady, the second half of a window had {drift:.2f} x the rate of "
        "the first; use a longer --warmup and --seconds"
        for line, drift in found
        if not low <= drift <= high
    ]


def _who(report: Report) -> list[str]:
    """Interpreters and versions, each once, with the sides that have them."""
    found: dict[str, list[str]] = {}
    for name, facts in report.sides.items():
        versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
        gil = "on" if facts["gil"] else "off"
        decode = "" if facts["decode"] == "ours" else ", functions of its own"
        about = f"Python {facts['python']}, GIL {gil}{decode}; {versions}"
        found.setdefault(about, []).append(name)
        if facts["note"]:
            found.setdefault(facts["note"], []).append(name)
    return [f"  {', '.join(names)}: {about}" for about, names in found.items()]


def _verdict(report: Report) -> list[str]:
    if report.differences:
        return ["  DIFFERENT RESULTS:", *(f"    {text}" for text in report.differences)]
    if len(report.checked) < 2:
        return ["  one side checked: nothing to compare with"]
    close = f"pixels within {TOLERANCE:g} step in block means"
    pixels = "the same pixels" if report.identical else f"{close}, the same bytes between equal decoders"
    return [f"  {len(report.checked)} sides checked: same samples, tokens and labels; {pixels}"]


def _spread(spread: Spread, digits: int | None = None) -> str:
    write = _number if digits is None else lambda value: f"{value:.{digits}f}"
    return f"{write(spread.median)} ({write(spread.least)} to {write(spread.most)})"


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
