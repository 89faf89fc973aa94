"""Measures the shape of the code: sizes, names and imports. tests/docs/test_shape.py holds some of them to a limit.

    python tools/shape.py                       every figure
    python tools/shape.py --json                the same, for a program
    python tools/shape.py --list one-importer   the places behind one figure

All are read from the source text, except for the modules of an HTTP worker: a real worker process counts them.
"""

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "penstock"
LONGEST_FILE = 400
IRREGULAR = re.compile(
    r"become|begun|born|bound|bought|broken|brought|built|caught|chosen|done|drawn|driven|fed|felt|found|given|gone|grown"
    r"|heard|held|hidden|kept|known|laid|led|left|lent|lost|made|met|paid|said|seen|sent|shown|shut|spent|spoken|spun"
    r"|stood|struck|taken|taught|thought|thrown|told|torn|understood|won|woken|written"
)
"""Participles that do not end in -ed."""
NOUNS_AND_VERBS = frozenset(
    {"bed", "bring", "embed", "feed", "need", "nothing", "ping", "ring", "seed", "speed", "string", "thing", "timing"}
)
"""Words that end like a participle or a gerund and are none."""
NO_VERBS = frozenset({"all", "next", "not", "others", "unless", "until"})
HANDLERS = ("fleet_app", "handlers", "worker_app")
"""Files of the tests with handlers, which workers run: a handler may sleep."""
AGENT = ("penstock.worker.agent.agent", "penstock.worker.http_api")
REPORT = "print(*sorted(name for name in sys.modules if name.startswith('penstock')), sep='\\n', flush=True)"
WORKER = f"""
import os, sys, threading, time
from penstock.cli import main

def report() -> None:
    before = -1
    while before != len(sys.modules):
        before = len(sys.modules)
        time.sleep(3.0)
    {REPORT}
    os._exit(0)

threading.Thread(target=report).start()
main(["worker", "examples.quickstart:app", "--url", "http://127.0.0.1:9"])
"""
"""A worker without a server, which prints the modules it has loaded once their number stays the same, and ends."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Figure:
    """One measure: its name, its value, and the places that it counts."""

    name: str
    value: str
    places: Sequence[str] = ()


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its path from the root, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    def place(self, node: ast.stmt, name: str) -> str:
        return f"{self.path}:{node.lineno} {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", metavar="FIGURE", help="print the places behind one figure")
    asked = parser.parse_args()
    modules = read_modules(ROOT / "src")
    if asked.list is not None:
        return print_places(modules, asked.list)
    figures = [measure(modules) for measure in MEASURES.values()]
    if asked.json:
        print(json.dumps({figure.name: figure.value for figure in figures}, indent=2))
    else:
        width = max(len(figure.name) for figure in figures)
        print(*(f"{figure.name:<{width}}  {figure.value}" for figure in figures), sep="\n")
    return 0


def print_places(modules: Sequence[Module], name: str) -> int:
    if name not in MEASURES:
        print(f"no such figure: {name}; there are {', '.join(MEASURES)}", file=sys.stderr)
        return 2
    print(*MEASURES[name](modules).places, sep="\n")
    return 0


def read_modules(folder: Path) -> list[Module]:
    """All modules below a folder, by name."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path.relative_to(ROOT), ast.parse(text), len(text.splitlines())))
    return found


def files(modules: Sequence[Module]) -> Figure:
    lengths = [module.lines for module in modules]
    median = int(statistics.median(lengths))
    return Figure("files; median lines; all lines", f"{len(lengths)}; {median}; {sum(lengths)}")


def long_files(modules: Sequence[Module]) -> Figure:
    places = [f"{module.path} {module.lines}" for module in modules if module.lines > LONGEST_FILE]
    return Figure(f"files over {LONGEST_FILE} lines", str(len(places)), places)


def short_files(modules: Sequence[Module]) -> Figure:
    places = [
        f"{module.path} {module.lines}"
        for module in modules
        if module.lines < 60 and module.path.stem not in ("__init__", "__main__", "seam")
    ]
    return Figure("files under 60 lines, without seams and __init__", str(len(places)), places)


def function_lengths(modules: Sequence[Module]) -> Figure:
    """Lines from `def` to the end, docstring included."""
    lengths = sorted((_length(function), module.place(function, function.name)) for module, function in _all(modules))
    counts = [length for length, _ in lengths]
    p90 = counts[int(len(counts) * 0.9)]
    value = f"{int(statistics.median(counts))}; {p90}; {counts[-1]}"
    return Figure("functions: median; p90; longest", value, [f"{place} {count}" for count, place in lengths[-30:]])


def pass_through(modules: Sequence[Module]) -> Figure:
    """Methods that only call a method of an attribute with their own arguments."""
    places = [
        module.place(method, f"{owner.name}.{method.name}")
        for module in modules
        for owner in module.classes
        for method in owner.body
        if isinstance(method, Function) and _passes_on(method)
    ]
    return Figure("pass-through methods", str(len(places)), places)


def one_importer(modules: Sequence[Module]) -> Figure:
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, imported in imports(modules):
        importers[imported].add(importer)
    places = [
        f"{module.path} <- {next(iter(importers[module.name]))}"
        for module in modules
        if len(importers[module.name]) == 1 and module.path.stem != "__init__"
    ]
    return Figure("modules with one importer", str(len(places)), places)


def repeated_classes(modules: Sequence[Module]) -> Figure:
    """Class names with several definitions. A leading underscore makes no difference."""
    named: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.classes:
            named[node.name.lstrip("_")].append(f"{module.path}:{node.lineno}")
    places = [f"{name} {' '.join(where)}" for name, where in sorted(named.items()) if len(where) > 1]
    return Figure("class names used more than once", str(len(places)), places)


def participles(modules: Sequence[Module]) -> Figure:
    places = [
        module.place(function, function.name)
        for module, function in _all(modules)
        if isinstance(function, ast.AsyncFunctionDef) and is_participle(function.name) and not _overrides(function)
    ]
    return Figure("async functions named by a participle", str(len(places)), places)


def gerunds(modules: Sequence[Module]) -> Figure:
    places = [
        str(module.path)
        for module in modules
        if module.path.stem.endswith("ing") and module.path.stem not in NOUNS_AND_VERBS
    ]
    return Figure("files named by a gerund", str(len(places)), places)


def holders(modules: Sequence[Module]) -> Figure:
    """Modules that import Engine for the type checker only: a part that holds the whole engine."""
    places = [
        module.place(node, "Engine")
        for module in modules
        for node in _for_typing(module.tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "Engine" for alias in node.names)
    ]
    return Figure("TYPE_CHECKING imports of Engine", str(len(places)), places)


def cycles(modules: Sequence[Module]) -> Figure:
    """Groups of modules that import each other, TYPE_CHECKING and imports inside functions included."""
    graph: dict[str, set[str]] = {module.name: set() for module in modules}
    for importer, imported in imports(modules):
        if imported != importer:
            graph[importer].add(imported)
    groups = [sorted(group) for group in strong_components(graph) if len(group) > 1]
    return Figure("import cycles", str(len(groups)), [" ".join(group) for group in groups])


def worker_imports(_modules: Sequence[Module]) -> Figure:
    return _loaded("modules imported by agent and HTTP API", f"import sys, {', '.join(AGENT)}; {REPORT}")


def worker_modules(_modules: Sequence[Module]) -> Figure:
    return _loaded("modules loaded by an HTTP worker process", WORKER)


def _loaded(name: str, script: str) -> Figure:
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    places = [line for line in ran.stdout.splitlines() if re.fullmatch(rf"{PACKAGE}(\.\w+)*", line)]
    return Figure(name, str(len(places)) if places else "unknown", places)


def polling_tests(_modules: Sequence[Module]) -> Figure:
    """Loops in tests that sleep instead of waiting for a signal. sleep(0), which only yields, is allowed."""
    found: dict[str, None] = {}
    for path in sorted(path for path in (ROOT / "tests").rglob("*.py") if path.stem not in HANDLERS):
        for loop in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(loop, ast.While | ast.For | ast.AsyncFor):
                found.update({f"{path.relative_to(ROOT)}:{call.lineno}": None for call in _sleeps(loop)})
    return Figure("loops of tests that sleep", str(len(found)), list(found))


MEASURES: Mapping[str, Callable[[Sequence[Module]], Figure]] = {
    "files": files,
    "long-files": long_files,
    "short-files": short_files,
    "functions": function_lengths,
    "pass-through": pass_through,
    "one-importer": one_importer,
    "classes": repeated_classes,
    "participles": participles,
    "gerunds": gerunds,
    "engine-holders": holders,
    "cycles": cycles,
    "worker-imports": worker_imports,
    "worker-modules": worker_modules,
    "polling-tests": polling_tests,
}


def is_participle(name: str) -> bool:
    """Whether a name ends with a participle and does not begin with a verb: `_made`, `_running`, `_all_applied`."""
    *before, last = name.strip("_").split("_")
    if before and before[0] not in NO_VERBS:
        return False
    return last not in NOUNS_AND_VERBS and (IRREGULAR.fullmatch(last) is not None or last.endswith(("ed", "ing")))


def imports(modules: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Pairs of importer and imported module, within the package."""
    names = {module.name for module in modules}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Import):
                yield from ((module.name, alias.name) for alias in node.names if alias.name in names)
            elif isinstance(node, ast.ImportFrom) and node.module in names:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield module.name, inner if inner in names else node.module


def strong_components(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of nodes that reach each other; small graphs only."""
    reached = {node: _reach(graph, node) for node in graph}
    groups: list[set[str]] = []
    for node in graph:
        if not any(node in group for group in groups):
            groups.append({node} | {other for other in reached[node] if node in reached[other]})
    return groups


def _reach(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(graph[node])
    return found


def _all(modules: Sequence[Module]) -> Iterator[tuple[Module, Function]]:
    return ((module, function) for module in modules for function in module.functions)


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _overrides(function: Function) -> bool:
    """Whether the name is inherited, and so not ours to choose."""
    return any(isinstance(one, ast.Name) and one.id == "override" for one in function.decorator_list)


def _passes_on(method: Function) -> bool:
    body = [one for one in method.body if not _is_docstring(one)]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or body[0].value is None:
        return False
    value = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    given = [one.arg for one in [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]]
    own = given[:1]
    return bool(own) and isinstance(value, ast.Call) and _only_passes(value, own[0], set(given[1:]))


def _only_passes(call: ast.Call, own: str, given: set[str]) -> bool:
    """Whether a call on an attribute of `own` takes each given argument as it is, directly or in one lambda."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    inner = [one.body for one in arguments if isinstance(one, ast.Lambda)]
    if inner and isinstance(inner[0], ast.Call):
        arguments += [*inner[0].args, *(keyword.value for keyword in inner[0].keywords)]
    plain = [one for one in arguments if not isinstance(one, ast.Lambda)]
    names = {one.id for one in plain if isinstance(one, ast.Name)}
    simple = all(isinstance(one, ast.Name | ast.Attribute) for one in plain)
    return simple and given <= names and _starts_at(call.func, own)


def _starts_at(function: ast.expr, own: str) -> bool:
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id == own


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _for_typing(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from node.body


def _sleeps(loop: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep":
            zero = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if not zero and isinstance(node.func.value, ast.Name) and node.func.value.id in ("asyncio", "time"):
                yield node


if __name__ == "__main__":
    sys.exit(main())
