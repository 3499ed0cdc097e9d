"""The data that stand in for what a program loads by name."""

from __future__ import annotations

from torch.utils.data import DataLoader

from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.rows import AnyRows, collate_rows


def test_a_row_and_a_batch_are_rebuilt_by_their_types() -> None:
    """As accelerate does when it moves what a loader gives to a device."""
    collate_rows()
    data = AnyRows(Record())
    for given in (data[1], next(iter(DataLoader(data, batch_size=2)))):
        rebuilt = type(given)(dict(given))
        assert rebuilt["question"] == given["question"]
    assert data[0]["question"] != data[1]["question"]


def test_a_name_is_a_split_first_and_a_column_after_it() -> None:
    data = AnyRows(Record())
    assert isinstance(data["train"], AnyRows)
    for texts in (data["train"]["answer"], AnyRows(Record(), split=True)["answer"]):
        assert texts[1].split("####")[-1] == " 8"


def test_a_column_answers_as_a_number_and_as_several() -> None:
    """As the numbers and the target of an arithmetic task do, which a reward calculates with."""
    row = AnyRows(Record())[1]
    assert float(row["target"]) == int(row["target"]) == 8
    assert [float(number) for number in row["nums"]] == [8.0, 8.0]
    assert [message["content"] for message in row["messages"]] == 2 * [row["question"]]
