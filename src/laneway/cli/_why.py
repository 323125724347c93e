"""``laneway why``: explain why an app is stuck."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laneway.cli._options import BrokersOption, ConfigOption, JsonOption, ProfileOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laneway._declare.app import App
    from laneway.cli._why_group import Finding, Subject
    from laneway.settings import Settings

__all__ = ["as_of_now", "why"]


_SILENT = 10.0  # seconds; a live process writes its status every second
_SHOWN = 20  # sentences of one process
_STYLE = {"OK": typer.colors.GREEN, "WARNING": typer.colors.YELLOW, "CRITICAL": typer.colors.RED}


def why(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The app, for example billing:app; or only its group: billing.")
    ],
    as_json: JsonOption = False,
    config: ConfigOption = None,
    profile: ProfileOption = "default",
    brokers: BrokersOption = None,
) -> None:
    """Explain why an app is stuck: which records block it, what they wait for, and who is in its group.

    What Kafka knows is shown for every engine and from any machine. Processes of this machine that run the app, or
    drive it on Spark, also show what they wait for. Joins no group and changes nothing. Exit codes: 0 explained, 1
    Kafka does not answer, 2 wrong usage.
    """
    from laneway._runtime.status_file import statuses
    from laneway.cli._run import loaded
    from laneway.errors import AdminError

    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors="backslashreplace")  # a key may be more than the terminal can write
    settings = loaded(config, profile, {"brokers": brokers})
    app = _app(target, settings)
    group = target if app is None else app.name
    said = [as_of_now(one) for one in statuses(group)]
    groups: list[dict[str, Any]] = []
    if not as_json:
        _print_processes(said)  # before asking Kafka, which may be the problem
    try:
        subjects = [_of_group(group, settings)] if app is None else _of_app(app, settings)
        groups.extend(_looked(subject, is_shown=not as_json) for subject in subjects)
    except AdminError as error:
        where = ",".join(settings.cluster().brokers)
        if as_json:
            _print_json(group, said, groups, str(error))
        raise AdminError(f"no answer from Kafka at {where}: {error}") from error
    if as_json:
        _print_json(group, said, groups)


def as_of_now(said: dict[str, Any]) -> dict[str, Any]:
    """The last status of a process; critical when it is old, because a hung process cannot report that it hangs."""
    from laneway._declare.health import Level, Reason, lasting, moment

    silent = max(0.0, time.time() - float(said.get("at", 0.0)))
    health = said.get("health", {})
    if silent > _SILENT:
        text = f"no status for {lasting(silent)}: the process hangs or was suspended"
        reason = Reason(Level.CRITICAL, "silent", text, moment(silent)).as_dict()
        health = {"level": str(Level.CRITICAL), "reasons": [reason, *health.get("reasons", [])]}
    return {**said, "silent_seconds": round(silent, 1), "health": health}


def _app(target: str, settings: Settings) -> App | None:
    """The app with its settings applied; None when only a group is named."""
    if ":" not in target:
        return None
    from laneway._runtime.configure import configured
    from laneway.cli._target import find_app

    return configured(find_app(target), settings)


def _looked(subject: Subject, *, is_shown: bool) -> dict[str, Any]:
    from laneway.cli._why_group import GroupLook

    look = GroupLook(subject)
    found = list(look.findings())
    if is_shown:
        _print_findings(subject, found)
    return _as_dict(subject, look, found)


def _of_app(app: App, settings: Settings) -> list[Subject]:
    from laneway._runtime.configure import cluster_of
    from laneway.admin import error_topics_of
    from laneway.cli._why_group import Subject

    errors = error_topics_of(app, lambda route: settings.cluster(cluster_of(route, settings)))
    found = []
    for name in dict.fromkeys(cluster_of(route, settings) for route in app.routes):
        cluster = settings.cluster(name)
        routes = [route for route in app.routes if cluster_of(route, settings) == name]
        found.append(
            Subject(
                app.name,
                cluster,
                tuple(dict.fromkeys(route.topic.name for route in routes)),
                {
                    topic: delay.total_seconds()
                    for route in routes
                    for topic, delay in zip(route.retry_topics_of(app.name), route.retry.delays, strict=False)
                },
                tuple(topic for topic in errors if topic.cluster == cluster),
                joins=settings.engine == "direct",
            )
        )
    return found


def _of_group(group: str, settings: Settings) -> Subject:
    """A group without its code: its topics are those it has committed offsets for, or reads."""
    from laneway.admin import ErrorTopic
    from laneway.cli._why_group import Subject, topics_of_group

    cluster = settings.cluster()
    topics, sources = topics_of_group(group, cluster)
    retries = {topic: None for topic in topics if f".{group}.retry." in topic}
    errors = tuple(
        ErrorTopic(group, topic, cluster, (topic.removesuffix(f".{group}.error"),))
        for topic in topics
        if topic.endswith(f".{group}.error")
    )
    return Subject(group, cluster, tuple(topic for topic in sources if topic not in retries), dict(retries), errors)


def _print_processes(said: Iterable[dict[str, Any]]) -> None:
    from laneway.cli._errors_view import safe

    for one in said:
        level = str(one.get("health", {}).get("level", "?"))
        owned = sum(len(numbers) for numbers in one.get("owned", {}).values())
        detail = f" ({one['detail']})" if one.get("detail") else ""
        typer.secho(
            safe(f"process {one['pid']} of this machine: {level}, {one.get('state')}{detail}, {owned} partitions", 500),
            fg=_STYLE.get(level),
        )
        reasons = [reason for reason in one.get("health", {}).get("reasons", []) if reason["code"] != "stalled"]
        lines = [f"{reason['level']}: {reason['text']}" for reason in reasons]
        lines += [stall["sentence"] for stall in one.get("why", [])]
        for line in lines[:_SHOWN]:
            typer.echo(f"  {safe(line, 1_000)}")
        if len(lines) > _SHOWN:
            typer.echo(f"  and {len(lines) - _SHOWN} more; --json shows all")


def _print_findings(subject: Subject, found: Iterable[Finding]) -> None:
    from laneway.cli._errors_view import safe

    typer.echo(f"group {subject.group}, as Kafka at {','.join(subject.cluster.brokers)} knows it:")
    for finding in found:
        typer.echo(f"  {safe(finding.text, 1_000)}")


def _as_dict(subject: Subject, look: Any, found: Iterable[Finding]) -> dict[str, Any]:
    return {
        "brokers": list(subject.cluster.brokers),
        "state": look.group.state,
        "members": [
            {"client": member.client, "host": member.host, "partitions": [list(place) for place in member.places]}
            for member in look.group.members
        ],
        "partitions": [
            {
                "topic": stand.topic,
                "partition": stand.partition,
                "committed": stand.committed,
                "end": stand.end,
                "finished_past_it": stand.finished,
                "lag": stand.lag,
            }
            for stand in look.stands
        ],
        "findings": [finding.as_dict() for finding in found],
    }


def _print_json(group: str, said: list[dict[str, Any]], groups: list[dict[str, Any]], error: str | None = None) -> None:
    known = {"group": group, "processes": said, "clusters": groups} | ({} if error is None else {"error": error})
    # ASCII only, and DEL, the one control character that JSON lets through: it may end on a terminal.
    typer.echo(json.dumps(known, indent=2).replace("\x7f", "\\u007f"))
