"""The documentation is complete, and what is generated is fresh."""

import argparse
import ast
import re
import tomllib
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import offramp
from sidecar import brokers, cli, config
from sidecar.cli.parser import Parser
from sidecar.config.build import keys_of
from sidecar.config.formats import Group, format_of
from sidecar.config.yaml_writer import example
from sidecar.core.failures import dead_letter_topic
from sidecar.model.version import PROTOCOL, PROTOCOL_MINOR, VERSION
from sidecar.observability.metrics import METRICS
from sidecar.settings import ClientSettings, Settings, SubscriptionSettings
from tools.config_reference import key_rows, with_tables

ROOT = Path(__file__).parents[2]
STALE = "run `python -m tools.config_reference`"


#: pages that people write
PAGES = [
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md", "deploy/**/*.md", "clients/**/*.md", "examples/**/*.md")
    for path in sorted(ROOT.glob(pattern))
    if not {"node_modules", "target", "vendor"} & set(path.parts)
]


#: what people copy from, with comments for them
COMMENTED = ["Dockerfile", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "deploy").rglob("*.yaml")))]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def prose(name: str) -> str:
    """A page without its code."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", read(name))


def anchors(name: str) -> set[str]:
    """What headings of a page can be linked as."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(name))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def map_of(package: str) -> set[str]:
    """The modules and packages that the docstring of a package lists: a table, or two columns."""
    text = ast.get_docstring(ast.parse(read(f"{package}/__init__.py"))) or ""
    cells = re.findall(r"(?m)^\| (`[^|]*`) \||^([a-z_][\w/]*(?:, [a-z_][\w/]*)*)  +\S", re.sub(r"(?m)^    ", "", text))
    return {name.strip("`/") for cell in cells for name in re.split(r",? ", "".join(cell))}


#: packages whose docstring is a map
MAPS = [
    package
    for root in ("benchmarks", "clients/python/offramp", "sidecar", "spark_bridge", "tests", "tools")
    for path in sorted((ROOT / root).rglob("__init__.py"))
    if map_of(package := str(path.parent.relative_to(ROOT)))
]


def test_the_annotated_example_is_what_the_settings_say() -> None:
    assert read("examples/offramp.yaml") == example(), STALE


def test_the_reference_is_what_the_settings_say() -> None:
    assert read("docs/configuration.md") == with_tables(read("docs/configuration.md")), STALE


def test_the_annotated_example_loads_as_the_defaults() -> None:
    loaded = config.load(str(ROOT / "examples/offramp.yaml"), environ={})
    assert loaded.subscriptions == {"orders": SubscriptionSettings(name="orders", topics=("orders",))}
    defaults = Settings()
    assert (loaded.listen, loaded.http, loaded.drain, loaded.log) == (
        defaults.listen,
        defaults.http,
        defaults.drain,
        defaults.log,
    )
    assert loaded.brokers["local"].options == brokers.options_class("local")()


def test_the_other_brokers_of_the_example_load_once_their_comments_are_taken_away(tmp_path: Path) -> None:
    text = example()
    start = text.index("\nbrokers:\n")
    end = text.index("\n\n", start)
    opened = re.sub(r"(?m)^  # ?(?=( *\w+:)|  +#)", "  ", text[start:end])
    file = tmp_path / "opened.yaml"
    file.write_text(opened)
    assert set(config.load(str(file), environ={}).brokers) == set(brokers.kinds())


@pytest.mark.parametrize("kind", brokers.kinds())
def test_every_option_of_every_broker_is_documented(kind: str) -> None:
    section = read("docs/configuration.md").partition(f"with `type: {kind}`")[2].partition("\n### ")[0]
    for key, _, _ in key_rows(brokers.options_class(kind)):
        assert f"| `{key}` |" in section


def test_every_key_is_documented_and_means_something() -> None:
    document, annotated = read("docs/configuration.md"), read("examples/offramp.yaml")
    for cls in (Settings, ClientSettings, SubscriptionSettings):
        for key, field, _ in key_rows(cls):
            if key not in ("brokers", "clients", "subscriptions"):
                assert f"| `{key.split('.', 1)[1] if cls is Settings else key}` |" in document
            assert re.search(rf"(?m)^[ #]*{key.rpartition('.')[2]}:", annotated)
            assert field.metadata["doc"].endswith((".", "?")), f"{key} is documented in sentences"


def test_every_setting_is_a_key() -> None:
    """A field that nobody can set would be a constant in the wrong place."""

    def fields(cls: type) -> set[str]:
        return set(cls.__dataclass_fields__)  # type: ignore[attr-defined]

    assert fields(Settings) == set(keys_of(Settings))
    assert fields(SubscriptionSettings) == {"name", *keys_of(SubscriptionSettings)}
    assert fields(ClientSettings) == {"name", *keys_of(ClientSettings)}
    for cls in (Settings, SubscriptionSettings):
        for _, hint in keys_of(cls).values():
            fmt = format_of(hint)
            if isinstance(fmt, Group):
                assert fields(fmt.cls) == set(keys_of(fmt.cls))


def test_every_command_and_every_option_of_it_is_documented() -> None:
    document = read("docs/commands.md")
    general, *_ = document.partition("\n## ")
    for name in cli.COMMANDS:
        section = document.partition(f"\n## offramp {name}\n")[2].partition("\n## ")[0]
        assert section.strip(), f"docs/commands.md has nothing about {name}"
        parser = Parser(prog="offramp", help_text="")
        import_module(f"sidecar.cli.commands.{name.replace('-', '_')}").arguments(parser)
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option != "--help" and action.help != argparse.SUPPRESS:
                    assert f"`{option}" in section + general, f"docs/commands.md does not say {option} of {name}"


def test_every_metric_is_documented_as_it_describes_itself() -> None:
    document = read("docs/operations.md")
    for metric in METRICS:
        row = f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | {metric.help} |"
        assert row in document, f"docs/operations.md lacks the row {row}"


def test_every_header_of_a_dead_letter_is_documented() -> None:
    document = read("docs/operations.md")
    assert [header for header in dead_letter_topic.HEADERS if f"`{header}`" not in document] == []


def test_every_package_of_the_sidecar_is_on_the_map() -> None:
    document = read("docs/architecture.md")
    for path in (ROOT / "sidecar").iterdir():
        name = path.stem if path.suffix == ".py" else f"{path.name}/" if path.is_dir() else ""
        if name.strip("_/") and not name.startswith("__"):
            assert f"`{name}`" in document, f"docs/architecture.md does not tell of sidecar/{name}"


def test_every_promise_names_the_code_that_keeps_it_and_the_tests_that_show_it() -> None:
    _, *promises = re.split(r"(?m)^## (?=\d+\.|Ranges)", read("docs/semantics.md"))
    assert len(promises) == 13
    for promise in promises:
        title = promise.partition("\n")[0]
        kept, _, shown = promise.partition("*Kept by*")[2].partition("*Shown by*")
        assert re.findall(r"`sidecar/[\w/]+\.py`", kept), f"docs/semantics.md does not say what keeps: {title}"
        assert re.findall(r"`tests/[\w/]+\.py`", shown), f"docs/semantics.md does not say what shows: {title}"


def test_the_walk_of_a_batch_names_functions_that_there_are() -> None:
    steps = re.findall(r"`(sidecar/[\w/]+)\.py:([\w.]+)`", read("docs/architecture.md"))
    assert len(steps) >= 30
    for path, name in steps:
        assert callable(attrgetter(name)(import_module(path.replace("/", ".")))), f"{path}.py has no {name}"


def test_the_map_has_every_module_of_the_core_and_of_subscriptions() -> None:
    document = read("docs/architecture.md")
    for package in ("core", "subscription"):
        folder = ROOT / "sidecar" / package
        for path in folder.rglob("[!_]*.py"):
            assert f"`{path.relative_to(folder).with_suffix('')}`" in document, f"docs/architecture.md lacks {path}"


@pytest.mark.parametrize("package", MAPS)
def test_the_map_of_a_package_is_its_folder(package: str) -> None:
    folder = ROOT / package
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__", "conftest"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    named = map_of(package)
    assert {name for name in modules if not name.startswith("test_")} | packages <= named
    assert [name for name in named - modules - packages if not (folder / name).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_a_page_names_is_there(name: str) -> None:
    roots = "benchmarks|clients|deploy|docs|examples|proto|sidecar|spark_bridge|tests|tools"
    named = re.findall(rf"`((?:{roots})/[\w./-]+)`", prose(name))
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_the_prose_of_a_page_wraps_at_120(name: str) -> None:
    """Not its code and its tables, nor markup, which cannot be wrapped."""
    lines = enumerate(
        re.sub(r"(?ms)^ *```.*?^ *```$", lambda code: "\n" * code[0].count("\n"), read(name)).split("\n"), 1
    )
    assert [number for number, line in lines if len(line) > 120 and not line.lstrip().startswith(("|", "<"))] == []


def test_the_pages_have_no_time_left_to_fill_in() -> None:
    assert [name for name in PAGES if "<!-- time:" in read(name)] == []


@pytest.mark.parametrize("name", COMMENTED)
def test_the_comments_of_a_file_wrap_at_120(name: str) -> None:
    lines = enumerate(read(name).split("\n"), 1)
    assert [number for number, line in lines if len(line) > 120 and line.lstrip().startswith("#")] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(name)):
        if not re.match(r"\w+:", link):
            page, _, anchor = link.partition("#")
            target = (ROOT / name).parent / page if page else ROOT / name
            assert target.exists(), f"{name}: {link}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(str(target)), f"{name}: {link} is no heading there"


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_a_page_names_is_there(name: str) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", read("Makefile")))
    named = re.findall(r"(?m)`(?:\w+=\S+ )*make ([a-z-]+)|^make ([a-z-]+)", read(name))
    assert {first or second for first, second in named} <= targets


def test_everything_that_make_test_fast_runs_is_there() -> None:
    fast = re.search(r"(?m)^FAST +:= ((?:.*\\\n)*.*)$", read("Makefile"))
    assert fast is not None
    paths = fast[1].replace("\\\n", " ").split()
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    headings = re.findall(r"(?m)^## (\S+)", read("CHANGELOG.md"))
    newest = headings[1] if headings[0] == "Unreleased" else headings[0]
    assert newest == VERSION


def test_sidecar_and_client_speak_one_protocol() -> None:
    # Importing it from the client would load gRPC for `offramp --help`.
    assert (PROTOCOL, PROTOCOL_MINOR) == (offramp.protocol.PROTOCOL, offramp.protocol.PROTOCOL_MINOR)


def test_sidecar_and_client_have_one_version() -> None:
    sidecar = tomllib.loads(read("pyproject.toml"))["project"]
    client = tomllib.loads(read("clients/python/pyproject.toml"))["project"]
    assert sidecar["version"] == client["version"] == VERSION
    assert f"offramp=={VERSION}" in sidecar["dependencies"]


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_every_picture_is_there(name: str) -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', read(name))
    assert pictures
    assert [picture for picture in pictures if not (ROOT / name).parent.joinpath(picture).is_file()] == []
