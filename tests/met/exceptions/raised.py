"""Raises real exceptions inside runs, see README.md."""

from __future__ import annotations

import sys
from collections.abc import Callable

import httpx2
import pydantic

from runreel import Client


class MissingAccountError(Exception):
    code = "missing_account"


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Order(pydantic.BaseModel):
    customer: str
    amount: int


def key() -> None:
    row = {"customer": "AC-1013"}
    print(row["customer_id"])


def asserted() -> None:
    plan: list[str] = []
    assert plan


def group() -> None:
    broken: list[Exception] = []
    for work in (key, lambda: int("twelve")):
        try:
            work()
        except Exception as error:
            broken.append(error)
    raise ExceptionGroup("two workers failed", broken)  # noqa: F821


def too_many_requests() -> None:
    answer = httpx2.MockTransport(lambda request: httpx2.Response(429, json={"error": {"message": "slow down"}}))
    with httpx2.Client(transport=answer) as client:
        client.post("https://models.example/v1/chat").raise_for_status()


def validation() -> None:
    Order.model_validate({"customer": "AC-1013", "amount": "many"})


def caused() -> None:
    try:
        key()
    except KeyError as error:
        raise MissingAccountError("no report for AC-1013") from error


def while_handling() -> None:
    try:
        int("twelve")
    except ValueError:
        key()


def without_message() -> None:
    raise TimeoutError


def lines() -> None:
    raise ValueError("the query failed:\n  select *\n  from ledger")


def characters() -> None:
    raise ValueError("größer als 漢字 😀 \x1b[31mred")


def recursion() -> None:
    recursion()


def noted() -> None:
    error = OSError(28, "No space left on device", "/data/ledger")
    error.add_note("while writing row 7")
    raise error


def silent() -> None:
    raise SilentError


RAISED: dict[str, Callable[[], None]] = {
    "python key": key,
    "python assert": asserted,
    "python group": group,
    "python http 429": too_many_requests,
    "python validation": validation,
    "python cause": caused,
    "python context": while_handling,
    "python without a message": without_message,
    "python lines": lines,
    "python characters": characters,
    "python recursion": recursion,
    "python notes": noted,
    "python without a text": silent,
}


def main() -> None:
    with Client() as client:
        for name, raises in RAISED.items():
            run = client.run(name, agent="ledger")
            try:
                with run, run.step("plan"), run.tool("ledger_fetch", {"account": "AC-1013"}):
                    raises()
            except Exception:
                sys.stdout.write(f"{name}\t{run.run_id}\n")


if __name__ == "__main__":
    main()
