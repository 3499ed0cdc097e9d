"""The data that stand in for what a program loads by name."""

from __future__ import annotations

import torch
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
    assert [message["content"] for message in row["turns"]] == 2 * [row["question"]]
    asked, answered = row["messages"]
    assert (asked["role"], answered["from"]) == ("user", "assistant")
    assert f"{asked['content']} {answered['value']}" == row["question"]


def test_a_function_of_a_batch_gives_each_row_its_columns() -> None:
    """As programs do that tokenize their data with ``map(…, batched=True)``."""

    def tokenized(batch: dict[str, list[str]], indices: list[int]) -> dict[str, list[object]]:
        return {
            "prompt": [f"Question: {question}" for question in batch["question"]],
            "input_ids": [[index] for index in indices],
        }

    data = AnyRows(Record(), split=True).map(tokenized, batched=True, with_indices=True)
    assert data[1]["prompt"] == f"Question: {AnyRows(Record())[1]['question']}"
    assert data[2]["input_ids"] == [2]


def test_a_function_of_a_batch_that_fails_leaves_the_rows() -> None:
    record = Record()
    data = AnyRows(record).map(lambda batch: {"n": batch["question"][0] + 1}, batched=True)
    assert data.column_names == []
    assert "TypeError" in record.notes[-1]


def test_a_function_of_a_batch_that_makes_other_rows_leaves_them() -> None:
    data = AnyRows(Record()).map(lambda batch: {"block": [1, 2]}, batched=True)
    assert data.column_names == []


def test_what_a_program_maps_is_stored_as_lists_until_it_asks_for_tensors() -> None:
    def counted(batch: dict[str, list[str]]) -> dict[str, torch.Tensor]:
        return {"ids": torch.arange(2 * len(batch["question"])).reshape(-1, 2)}

    data = AnyRows(Record(), split=True).map(counted, batched=True)
    assert data["ids"][1] == [2, 3]
    data.set_format(type="torch")
    assert torch.equal(data[1]["ids"], torch.tensor([2, 3]))
    assert data.with_format("torch")[1]["question"] == AnyRows(Record())[1]["question"]


def test_as_many_rows_as_are_selected_and_every_column() -> None:
    data = AnyRows(Record(), split=True)
    assert len(data) >= 1000
    assert "problem" in data.column_names
    assert len(data.select(range(3))) == len(list(data.take(3))) == 3
    assert len(data.select(range(300))) == 300
    assert data.select(range(300)).map(lambda row: {"asked": row["question"]})[299]["asked"]
