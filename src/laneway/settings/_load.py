"""Makes `Settings` from a file, the environment and flags, or reports every problem."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from laneway.errors import Problem, SettingsError
from laneway.settings._check import check
from laneway.settings._introspect import fields, is_table
from laneway.settings._located_values import MAX_DEPTH, Node, dotted, find, flatten, merge, plain, plant, prune, shown
from laneway.settings._model import Settings, SparkSettings
from laneway.settings._report import near, problem_at, report
from laneway.settings._spark import is_secret
from laneway.settings._types import Context
from laneway.settings._yaml import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laneway.settings._located_values import Path as Place

__all__ = ["effective", "load", "overridden", "short_names"]

_Layer = tuple[tuple[str, ...], Node]

_NOTHING: Mapping[str, str] = MappingProxyType({})
_BUILT_IN = "default"
_GIVEN = "settings"
_SECRETS = (("password",), ("key_password",), ("oauth", "client_secret"))
_NOT_SETTINGS = {"LANEWAY_HOME", "LANEWAY_CONFIG", "LANEWAY_PROFILE", "LANEWAY_PRELOAD", "LANEWAY_DEBUG"}


def load(
    path: Path | None = None,
    *,
    profile: str = "default",
    environ: Mapping[str, str] = _NOTHING,
    overrides: Mapping[str, object] = _NOTHING,
) -> Settings:
    """Read, merge and check all settings. Uses no network and starts nothing.

    Args:
        path: the YAML file; None means all defaults, with the cluster ``main`` at 127.0.0.1:9092.
        profile: laid over the profile ``default`` of the file.
        environ: variables that begin with ``LANEWAY_`` win over the file; secrets may come from any variable.
        overrides: dotted keys that win over everything; ``brokers`` means those of the default cluster.

    Raises:
        SettingsError: with every problem, not only the first.
    """
    root, problems = _profile(path, profile)
    from_variables, more = _from_environment(environ)
    from_flags, others = _from_flags(overrides)
    context = Context(environ, path.parent if path else Path())
    return _settled(root, [*from_variables, *from_flags], context, [*problems, *more, *others])


def overridden(settings: Settings, overrides: Mapping[str, object]) -> Settings:
    """A copy with some settings changed, checked again."""
    layers, problems = _from_flags(overrides)
    result = _settled(plant(_values(settings), _GIVEN), layers, Context(), problems)
    result._origins = {**settings.origins, **result.origins}  # noqa: SLF001 - the door of the model
    kept = [warning for warning in settings.warnings if warning.source != _GIVEN and warning not in result.warnings]
    again = {(warning.key, warning.message) for warning in kept}
    new = [warning for warning in result.warnings if (warning.key, warning.message) not in again]
    result._warnings = (*kept, *new)  # noqa: SLF001
    return result


def effective(settings: Settings | None, overrides: Mapping[str, object]) -> Settings:
    """The settings given, or those of ``laneway.yaml`` and the environment, under the caller's own arguments."""
    chosen = {key: value for key, value in overrides.items() if value is not None}
    if settings is None:
        named = os.environ.get("LANEWAY_CONFIG")
        path = Path(named) if named else Path("laneway.yaml")
        found = path if named or path.exists() else None
        profile = os.environ.get("LANEWAY_PROFILE", "default")
        return load(found, profile=profile, environ=os.environ, overrides=chosen)
    return settings.with_overrides(chosen) if chosen else settings


def _values(model: BaseModel) -> dict[str, object]:
    """The values under the names of the file, secrets included; a dump would mask them."""
    values: dict[str, object] = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, dict):
            value = {key: _values(item) if isinstance(item, BaseModel) else item for key, item in value.items()}
        values[info.alias or name] = _values(value) if isinstance(value, BaseModel) else value
    return values


def _settled(root: Node, layers: list[_Layer], context: Context, problems: list[Problem]) -> Settings:
    root, unclear = _laid(root, layers)
    settings, refused, removed = _validated(root, context)
    problems = [*problems, *unclear, *refused]
    warnings: list[Problem] = []
    for finding in check(settings):
        # A refused value was replaced by its default, so findings about it would be wrong.
        if not any(_is_below(place, removed) for place in (finding.path, *finding.also)):
            target = warnings if finding.is_warning else problems
            target.append(problem_at(root, finding.path, finding.message, finding.fix))
    if problems:
        raise SettingsError(_in_order(problems))
    settings._warnings = (*_in_order(warnings), *_literals(root))  # noqa: SLF001 - the door of the model
    settings._origins = dict(_origins(root, ()))  # noqa: SLF001
    return settings


def _profile(path: Path | None, profile: str) -> tuple[Node, list[Problem]]:
    """The settings of *profile*, and every problem with the file itself."""
    if path is None:
        missing = [] if profile == "default" else [_unknown_profile("settings", profile, [])]
        return Node({}, "settings"), missing
    source = str(path)
    node, problems = read(path)
    empty = Node({}, source, 1)
    if node is None:
        return empty, problems
    if not node.is_mapping:
        what = "the file is empty" if node.value is None else "the file is not a table of profiles"
        fix = "begin with 'default:' and indent the settings below it"
        return empty, [*problems, Problem(source, node.line, "", what, fix)]
    profiles: dict[str, Node] = node.value
    misplaced = [key for key in profiles if key in fields(Settings)]
    for key in misplaced:
        message = "this is a setting, but profiles are expected here"
        problems.append(Problem(source, profiles[key].line, key, message, "put it below 'default:', indented"))
    values = [name for name, part in profiles.items() if not part.is_mapping and part.value is not None]
    strays = [name for name in values if name not in misplaced]
    problems += [_not_a_table(source, name, profiles[name]) for name in strays]
    if profile not in profiles and not misplaced and not strays:
        problems.append(_unknown_profile(source, profile, list(profiles)))
    chosen = empty
    for name in dict.fromkeys(("default", profile)):
        part = profiles.get(name, empty)
        if part.is_mapping:
            chosen = merge(chosen, part)
    return chosen, problems


def _not_a_table(source: str, name: str, part: Node) -> Problem:
    message = f"{shown(part.value)} is given, but a profile is a table of settings"
    fix = "indent the settings below it; if it is a setting itself, put it below 'default:'"
    return Problem(source, part.line, dotted((name,)), message, fix)


def _unknown_profile(source: str, profile: str, known: list[str]) -> Problem:
    names = ", ".join(dotted((name,)) for name in known) or "none"
    message = f"there is no profile {shown(profile)}; the profiles are: {names}"
    return Problem(source, None, "", message, "use one of them, or add it to the file")


def short_names() -> dict[str, tuple[str, ...]]:
    """The variables with one underscore and the settings they stand for."""
    names: dict[str, tuple[str, ...]] = {"LANEWAY_BROKERS": ("brokers",)}
    names |= {f"LANEWAY_{name.upper()}": (name,) for name, info in fields(Settings).items() if not is_table(info)}
    names |= {
        f"LANEWAY_SPARK_{name.upper()}": ("spark", name)
        for name, info in fields(SparkSettings).items()
        if not is_table(info)
    }
    return names


def _from_environment(environ: Mapping[str, str]) -> tuple[list[_Layer], list[Problem]]:
    """The settings in *environ*, the general form after the short one; the values are never in a problem."""
    short = short_names()
    layers: list[_Layer] = []
    problems: list[Problem] = []
    for name in sorted(environ, key=lambda name: (name.startswith("LANEWAY__"), name)):
        if not name.startswith("LANEWAY_") or name in _NOT_SETTINGS:
            continue
        path = short.get(name)
        if path is None and name.startswith("LANEWAY__"):
            path = tuple(part.lower() for part in name.removeprefix("LANEWAY__").split("__"))
        if path is None or not all(path) or len(path) > MAX_DEPTH:
            fix = _variable_hint(name, short)
            problems.append(Problem(name, None, "", "this variable is not a setting", fix))
            continue
        layers.append((path, Node(environ[name], name)))
    return layers, problems


def _variable_hint(name: str, short: Mapping[str, object]) -> str:
    known = {key.removeprefix("LANEWAY_").lower(): key for key in (*short, *_NOT_SETTINGS)}
    hint = near(name.removeprefix("LANEWAY_"), known)
    if not hint.startswith("did you mean"):
        return "unset it, or write LANEWAY__ and the path of the setting with '__' for each dot"
    return f"did you mean {known[hint.split(chr(39))[1]]}?"


def _from_flags(overrides: Mapping[str, object]) -> tuple[list[_Layer], list[Problem]]:
    layers: list[_Layer] = []
    problems: list[Problem] = []
    for key, value in overrides.items():
        path = tuple(str(key).split("."))
        if value is None:
            continue
        message = "" if all(path) and len(path) <= MAX_DEPTH else "it is not the name of a setting"
        try:
            layers.append((path, plant(value, "flag")))
        except ValueError as error:
            message = str(error)
        if message:
            layers = [layer for layer in layers if layer[0] != path]
            problems.append(Problem("flag", None, dotted((str(key),)), message, "write for example spark.master"))
    return layers, problems


def _laid(root: Node, layers: list[_Layer]) -> tuple[Node, list[Problem]]:
    """Lay variables and flags over the file, in order, and find the default cluster."""
    declares_clusters = bool(_clusters(root))
    preview = root
    for path, node in layers:
        if path != ("brokers",):
            preview = _placed(preview, path, node)
    name, problems = _default_cluster(preview)
    for path, node in layers:
        place = ("clusters", name, "brokers") if path == ("brokers",) else path
        root = _placed(root, place, node)
    # A file that declares clusters must give their brokers; otherwise the default is the broker on this machine.
    if not _clusters(root) or (not declares_clusters and "main" in _clusters(root)):
        root = merge(_nested(("clusters", "main", "brokers"), Node("127.0.0.1:9092", _BUILT_IN)), root)
    root = merge(_nested(("cluster",), Node(name, _BUILT_IN)), root)
    return _with_flat_tables(root), problems


def _clusters(root: Node) -> dict[str, Node]:
    node = root.value.get("clusters")
    return {key: item for key, item in node.value.items() if item.is_mapping} if node and node.is_mapping else {}


def _default_cluster(root: Node) -> tuple[str, list[Problem]]:
    named = root.value.get("cluster")
    names = list(_clusters(root))
    if named and isinstance(named.value, str):
        return named.value, []
    if len(names) == 1:
        return names[0], []
    if not names or "main" in names:
        return "main", []
    message = f"there are {len(names)} clusters, and none is the default"
    return names[0], [problem_at(root, ("clusters",), message, f"add 'cluster: {names[0]}'")]


def _placed(root: Node, path: tuple[str, ...], node: Node) -> Node:
    return merge(root, _nested(_spelled(root, path), node))


def _nested(path: tuple[str, ...], node: Node) -> Node:
    for part in reversed(path):
        node = Node({part: node}, node.source)
    return node


def _spelled(root: Node, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path as the file spells it; variables have no lower case and no dashes."""
    spelled: list[str] = []
    node: Node | None = root
    for part in path:
        keys: dict[str, Node] = node.value if node and node.is_mapping else {}
        same = [key for key in keys if key.lower().replace("-", "_") == part.lower().replace("-", "_")]
        spelled.append(part if part in keys or not same else same[0])
        node = keys.get(spelled[-1])
    return tuple(spelled)


def _with_flat_tables(root: Node) -> Node:
    places = [("clusters", name, "client") for name in _clusters(root)]
    for place in [*places, ("spark", "conf")]:
        table = find(root, place)
        if table is find(root, place[:-1]) or not table.is_mapping:
            continue
        root = merge(prune(root, place), _nested(place, flatten(table)))
    return root


def _validated(root: Node, context: Context) -> tuple[Settings, list[Problem], list[Place]]:
    """The settings without the refused ones, the problems, and the paths of what was removed."""
    problems: list[Problem] = []
    removed: list[Place] = []
    while True:
        try:
            return Settings.model_validate(plain(root), context=context), problems, removed
        except ValidationError as error:
            before, known = root, list(removed)
            for place, problem in report(error, root):
                follows = _is_below(place, known) or any(gone[:-1] == place for gone in known)
                if not follows and problem.source != _BUILT_IN:
                    problems.append(problem)
                gone = tuple(itertools.takewhile(lambda part: isinstance(part, str), place))
                removed.append(gone)
                root = _without(root, gone)
            if root == before:
                raise SettingsError(_in_order(problems)) from None


def _without(root: Node, place: Place) -> Node:
    if place and place[0] == "clusters" and place[-1] == "brokers":
        # So that the rest of the cluster is still checked.
        return merge(root, _nested(tuple(map(str, place)), Node("127.0.0.1:9092", _BUILT_IN)))
    return prune(root, place)


def _is_below(place: Place, removed: list[Place]) -> bool:
    return any(place[: len(gone)] == gone for gone in removed)


def _in_order(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda problem: (problem.line is None, problem.source, problem.line or 0))


def _literals(root: Node) -> Iterator[Problem]:
    for place in _secret_places(root):
        node = find(root, place)
        if isinstance(node.value, str) and node is not find(root, place[:-1]):
            if node.line is not None:
                yield problem_at(root, place, "the secret is in the file", "write {env: NAME}")
            elif node.source == "flag":
                yield problem_at(root, place, "every user of the machine can see a secret in a flag", "use a variable")


def _secret_places(root: Node) -> Iterator[Place]:
    for name in _clusters(root):
        for secret in _SECRETS:
            yield ("clusters", name, "security", *secret)
    conf = find(root, ("spark", "conf"))
    for key, node in conf.value.items() if conf.is_mapping else ():
        if isinstance(node.value, str) and is_secret(key, node.value):
            yield ("spark", "conf", key)


def _origins(node: Node, path: Place) -> Iterator[tuple[str, str]]:
    if node.is_mapping and not node.value.keys() <= {"env", "file"}:
        for key, item in node.value.items():
            yield from _origins(item, (*path, key))
    elif node.source not in {_BUILT_IN, _GIVEN} and node.value is not None and path:
        yield dotted(path), f"{node.source}:{node.line}" if node.line else node.source
