"""Values of the keyed functions that every order rests on; a change of any is a new `ORDER_VERSION`."""

from __future__ import annotations

import numpy as np
import pytest

from zephon_ft.random import ORDER_VERSION, Keyed, key_of, mix, permutation, permute


def test_the_version_is_the_one_these_values_belong_to():
    assert ORDER_VERSION == 1


@pytest.mark.parametrize(
    ("key", "counter", "value"),
    [
        (0, 0, 16294208416658607535),
        (0, 1, 7960286522194355700),
        (1, 0, 10451216379200822465),
        (18446744073709551615, 9223372036854775808, 3055647633038352039),
    ],
)
def test_mix(key, counter, value):
    assert mix(key, counter) == value


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ((), 1),
        ((0,), 10451216379200822465),
        ((1, 2, 3), 8906765259331203056),
        (("web",), 694019347483738375),
        (("web", "rows", 5), 11761892936991251831),
        ((-1,), 6238072747940578789),
        (("a longer name than eight bytes",), 722201930319945711),
        (("ä中",), 7658387005996805438),
    ],
)
def test_key_of(parts, value):
    assert key_of(*parts) == value


@pytest.mark.parametrize(
    ("size", "key", "values"),
    [
        (1, 5, [0]),
        (2, 5, [0, 1]),
        (3, 5, [2, 1, 0]),
        (10, 5, [4, 5, 6, 1, 2, 8, 0, 7, 3, 9]),
        (17, 5, [2, 5, 0, 6, 16, 7, 9, 11, 8, 12, 14, 10, 3, 15, 13, 1, 4]),
    ],
)
def test_permute(size, key, values):
    assert [permute(i, size, key) for i in range(size)] == values


def test_permute_of_a_large_range():
    assert [permute(i, 10**12, 9) for i in (0, 1, 10**12 - 1)] == [518507473109, 179453501408, 273690243309]


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1000])
def test_permute_and_permutation_are_bijections(size):
    assert sorted(permute(i, size, 3) for i in range(size)) == list(range(size))
    assert sorted(permutation(size, 3).tolist()) == list(range(size))


def test_permutation():
    assert permutation(12, 77).tolist() == [3, 0, 11, 8, 10, 5, 7, 1, 2, 9, 4, 6]
    assert permutation(3, 0).dtype == np.int64


def test_draws_of_a_record():
    keyed = Keyed(7, "map(f)", 2)
    assert keyed.generator((0, 1, 2, 0)).integers(1 << 40, size=3).tolist() == [
        618561970286,
        696055435292,
        918900009783,
    ]
    assert keyed.generator((0, 1, 2, 0, 4)).random() == 0.6343762889666916


def test_draws_do_not_depend_on_what_was_drawn_before():
    fresh, used = Keyed(0, "f", 0), Keyed(0, "f", 0)
    used.generator((9, 9, 9, 9)).integers(3, size=5, dtype=np.int32)
    assert fresh.generator((1, 2, 3, 4)).random(4).tolist() == used.generator((1, 2, 3, 4)).random(4).tolist()
