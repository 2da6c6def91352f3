"""How work is cut into tasks: small batches are laid out together, and memory that runs short makes tasks small."""

from types import SimpleNamespace

from zephon_ft.engine.delivery import Slot
from zephon_ft.engine.pace import Pace
from zephon_ft.engine.tasks import layouts


def planned(units: int) -> Slot:
    return Slot([(None, SimpleNamespace(units=[None] * units, nbytes=0))])  # type: ignore[list-item]


def test_small_batches_share_the_task_that_lays_them_out_and_large_ones_do_not():
    slots = [planned(units) for units in (7, 7, 7, 20, 20, 0, 1)]
    made = layouts(slots, 16)
    assert [task.slots for task in made] == [slots[:2], slots[2:3], slots[3:4], slots[4:5], slots[5:]]
    assert all(slot.started for slot in slots)
    assert layouts([], 16) == []
    assert [len(task.slots) for task in layouts([planned(0), planned(0)], 16)] == [2]


def test_a_task_is_ten_milliseconds_of_work_and_an_eighth_of_that_where_memory_is_short():
    pace = Pace(2, None)
    for _ in range(50):
        pace.note(0, 10, 0.010, 10 * 1000)
        pace.note(1, 10, 0.001)
    assert (pace.groups(0), pace.groups(0, frugal=True)) == (10, 1)
    assert (pace.groups(1), pace.groups(1, frugal=True)) == (100, 12)


def test_large_rows_make_small_tasks():
    pace = Pace(1, None)
    pace.note(0, 8, 0.001, 8 << 20)
    assert pace.groups(0) == 8
    assert pace.groups(0, frugal=True) == 1
