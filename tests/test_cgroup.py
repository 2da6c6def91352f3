"""Limits of control groups, read from files as they lie in machines and containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from zephon_ft.cgroup import Limits, cgroup_limits

GIB = 1 << 30
NONE_V1 = "9223372036854771712\n"


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


V1 = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n"
CASES = {
    "nothing at all": ({}, Limits(None, None)),
    "version 2, a container": (
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        },
        Limits(1.5, 4 * GIB),
    ),
    "version 2, no limit": (
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
        Limits(None, None),
    ),
    "version 2, a parent allows less than the group": (
        {
            "proc/self/cgroup": "0::/jobs/mine\n",
            "sys/fs/cgroup/jobs/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/jobs/memory.max": "max\n",
            "sys/fs/cgroup/jobs/mine/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/jobs/mine/memory.max": f"{GIB}\n",
        },
        Limits(2.0, GIB),
    ),
    "version 1, the group's folder": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{2 * GIB}\n",
        },
        Limits(0.5, 2 * GIB),
    ),
    "version 1, a container that sees its group as the root": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
        },
        Limits(3.0, GIB),
    ),
    "version 1, no limit": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
        },
        Limits(None, None),
    ),
    "version 2 beside version 1": (
        {
            "proc/self/cgroup": "1:name=systemd:/\n0::/a\n",
            "sys/fs/cgroup/unified/a/cpu.max": "100000 100000\n",
        },
        Limits(1.0, None),
    ),
    "garbage": (
        {"proc/self/cgroup": "what\n0::/../..\n\n7:cpu\n", "sys/fs/cgroup/cpu.max": "\n"},
        Limits(None, None),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_limit_on_the_way_to_the_root_counts(case, tmp_path):
    files, expected = CASES[case]
    assert cgroup_limits(lay(tmp_path, files)) == expected


def test_a_file_that_is_no_text_limits_nothing(tmp_path):
    lay(tmp_path, {"proc/self/cgroup": "0::/\n"})
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_bytes(b"\xff\xfe")
    assert cgroup_limits(tmp_path) == Limits(None, None)
