"""The types a program is checked against when it uses the package."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
import typing
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import runreel
from runreel import JsonValue


def public_modules() -> Iterator[ModuleType]:
    yield runreel
    for found in pkgutil.walk_packages(runreel.__path__, "runreel."):
        if not any(word.startswith("_") for word in found.name.split(".")):
            yield importlib.import_module(found.name)


def public_members(owner: object) -> Iterator[tuple[str, object]]:
    for name, member in list(vars(owner).items()):
        if not name.startswith("_") or name in ("__init__", "__call__", "__enter__", "__aenter__"):
            yield name, member


def ours(thing: object) -> bool:
    return thing.__module__.partition(".")[0] == "runreel"


def public() -> dict[str, object]:
    """Everything of ours that can be imported without an underscore, by the name it has where it is made."""
    found: dict[str, object] = {}
    for module in public_modules():
        for name, member in public_members(module):
            if isinstance(member, type):
                for kind in filter(ours, member.__mro__):
                    found[f"{kind.__module__}.{kind.__qualname__}"] = kind
            elif isinstance(member, FunctionType) and member.__module__ == module.__name__:
                found[f"{module.__name__}.{name}"] = member
            elif typing.get_origin(member) is not None:
                # An alias, such as that of a runner's handlers.
                found[f"{module.__name__}.{name}"] = member
    return found


def functions_of(member: object) -> list[Callable[..., object]]:
    if isinstance(member, property):
        return [part for part in (member.fget, member.fset) if part is not None]
    if isinstance(member, (classmethod, staticmethod)):
        return [member.__func__]
    return [member] if isinstance(member, FunctionType) else []


def hints_of(thing: object) -> dict[str, object]:
    return typing.get_type_hints(thing, localns={"JsonValue": JsonValue})


def attributes_of(kind: type) -> Iterator[tuple[str, str]]:
    """The attributes that methods declare, `self.name: type = …`, as they are written."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            yield node.target.attr, ast.unparse(node.annotation)


def hints() -> Iterator[tuple[str, object]]:
    """Each public type of a parameter, an answer or an attribute, by what it is the type of."""
    for path, thing in public().items():
        if isinstance(thing, FunctionType):
            for name, hint in hints_of(thing).items():
                yield f"{path}({name})", hint
        elif isinstance(thing, type):
            for name, hint in hints_of(thing).items():
                if not name.startswith("_"):
                    yield f"{path}.{name}", hint
            for name, member in public_members(thing):
                for function in functions_of(member):
                    for said, hint in hints_of(function).items():
                        yield f"{path}.{name}({said})", hint
            for name, text in attributes_of(thing):
                if not name.startswith("_"):
                    yield f"{path}.{name}", Any if "Any" in text.replace("[", " ").split() else None
        else:
            yield path, thing


def names_any(hint: object, seen: tuple[object, ...] = ()) -> bool:
    if hint is Any:
        return True
    # JSON is in JSON; the parameters of a `Callable` are a list.
    parts = hint if isinstance(hint, list) else typing.get_args(hint)
    return hint not in seen and any(names_any(part, (*seen, hint)) for part in parts)


def test_no_public_signature_says_any() -> None:
    said = dict(hints())
    assert len(said) > 500
    assert "runreel._async.client.AsyncBaseClient.resume(value)" in said
    assert "runreel.langgraph._sync.checkpoints.Checkpoints.list(filter)" in said
    # Where LangGraph's and the Agents SDK's base classes say `Any`, an override may say `object`: none is forced to.
    assert {name for name, hint in said.items() if names_any(hint)} == set()


def test_every_public_parameter_and_answer_has_a_type() -> None:
    for path, thing in public().items():
        members = public_members(thing) if isinstance(thing, type) else [("", thing)]
        for name, member in members:
            for function in functions_of(member):
                parameters = list(inspect.signature(function).parameters.values())
                untyped = [
                    parameter.name
                    for parameter in parameters
                    if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
                ]
                assert untyped == [], f"{path}.{name}"
                assert "return" in function.__annotations__, f"{path}.{name}"


@pytest.mark.parametrize("hint", [Any, list[Any], dict[str, list[Any]], Any | None, Callable[[Any], int]])
def test_any_is_found_wherever_it_is(hint: object) -> None:
    assert names_any(hint)
    assert not names_any(JsonValue)
