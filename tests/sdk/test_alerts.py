"""The rules of the page about alerts: each expression parses, and names metrics that the server has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import promql_parser
import yaml

from conftest import Server

DOCS = Path(__file__).parent / "../../docs"


def documents() -> list[dict[str, Any]]:
    page = (DOCS / "tasks/alerts.md").read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def rules() -> list[dict[str, Any]]:
    return [rule for document in documents() for group in document.get("groups", []) for rule in group["rules"]]


def test_each_rule_has_a_name_of_its_own_and_an_expression_that_parses() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 5
    for rule in rules():
        promql_parser.parse(rule["expr"])
        assert set(rule) <= {"alert", "expr", "for"}, rule


def test_each_metric_of_a_rule_is_one_of_the_servers() -> None:
    described = re.findall(r"`(runreel_[a-z_]+)", (DOCS / "operations.md").read_text())
    named = {name for rule in rules() for name in re.findall(r"runreel_[a-z_]+", rule["expr"])}
    assert len(named) > 5
    assert {re.sub(r"_bucket$", "", name) for name in named} <= set(described)


def test_the_metric_of_a_rule_that_waits_for_no_event_is_there_from_the_start(server: Server) -> None:
    text = httpx2.get(f"{server.url}/metrics").text
    states = set(re.findall(r'^runreel_database_connections\{state="([a-z]+)"\}', text, re.MULTILINE))
    [rule] = [rule for rule in rules() if "runreel_database_connections" in rule["expr"]]
    assert set(re.findall(r'state="([a-z]+)"', rule["expr"])) == states, text


def test_the_job_of_the_rules_is_the_one_that_is_scraped() -> None:
    [scraped] = [job for document in documents() for job in document.get("scrape_configs", [])]
    assert any(f'job="{scraped["job_name"]}"' in rule["expr"] for rule in rules())
