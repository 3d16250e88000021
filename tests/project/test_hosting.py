"""What code hosts read: workflows, templates, policies, the citation and the paper name what exists."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
POLICIES = ["CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "PULL_REQUEST_TEMPLATE.md", "SECURITY.md", "SUPPORT.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAPER = ROOT / "docs" / "paper.md"
# What tools and hosts look for here and nowhere else, and the folders.
AT_THE_ROOT = {
    ".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "CITATION.cff", "LICENSE", "Makefile", "README.md",
    "constraints.txt", "docs", "examples", "kernelopt", "pyproject.toml", "tests",
}  # fmt: skip


def targets():
    """What `make` can make."""
    rules = re.findall(r"(?m)^([\w./ -]+):(?!=)", (ROOT / "Makefile").read_text())
    return {name for names in rules for name in names.split()}


def commands(workflow):
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_commands_that_exist(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert {"name", "jobs"} <= workflow.keys() and True in workflow  # YAML reads the key `on` as true
    for job in workflow["jobs"].values():
        assert job["runs-on"].startswith("ubuntu") and job["timeout-minutes"] <= 60
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        assert all(re.fullmatch(r"[\w./-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    for line in "\n".join(commands(workflow)).splitlines():
        program, *arguments = line.split()
        if program == "make":
            assert arguments and set(arguments) <= targets(), line
        else:
            assert (ROOT / program).stat().st_mode & 0o111, line


def test_ci_tests_each_version_and_builds_the_pages():
    workflow = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())
    assert {".ci/run", "make test", "make docs", "make dist-test"} <= set(commands(workflow))
    versions = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert [tuple(map(int, v.split("."))) for v in versions] == [(3, 11), (3, 12), (3, 13)]
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")
    # .ci/run makes what exists, too.
    made = re.findall(r"(?m)^make (.*)$", (ROOT / ".ci" / "run").read_text())
    assert made
    for line in made:
        words = re.sub(r'\S+="[^"]*"', "", line).split()
        assert {word for word in words if not word.startswith("--")} <= targets(), line


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_have_what_hosts_require(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in fields)
    assert any(field["validations"]["required"] for field in fields)


@pytest.mark.parametrize("name", [*POLICIES, "CHANGELOG.md"])
def test_links_lead_to_files(name):
    text = (GITHUB / name).read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith("https://") or (GITHUB / link).exists() for link in links), links
    paths = re.findall(r"`((?:docs|tests|kernelopt|examples|\.ci)/[\w./-]+)`", text)
    assert all((ROOT / path).exists() for path in paths), paths
    assert links or paths
    made = re.findall(r"`make ([\w-]+)", text)
    assert set(made) <= targets()


def test_citation_agrees_with_the_project():
    assert {"cff-version", "message", "title", "authors", "abstract", "keywords"} <= CITATION.keys()
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["license"] == PROJECT["license"]
    assert [author["name"] for author in CITATION["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert set(PROJECT["keywords"]) <= set(CITATION["keywords"])
    assert len(set(CITATION["keywords"])) == len(CITATION["keywords"])


def test_citation_states_the_date_of_a_released_version_only():
    released = f"## {PROJECT['version']}" in (ROOT / "docs" / "changelog.md").read_text()
    assert ("date-released" in CITATION) == released


def test_paper_cites_its_references():
    _, head, text = PAPER.read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert [author["name"] for author in about["authors"]] == [author["name"] for author in CITATION["authors"]]
    assert {a["affiliation"] for a in about["authors"]} <= {a["index"] for a in about["affiliations"]}
    assert {"title", "tags", "date"} <= about.keys()
    entries = re.findall(r"(?m)^@\w+\{([\w-]+),$", (PAPER.parent / about["bibliography"]).read_text())
    assert len(entries) == len(set(entries))
    assert set(re.findall(r"@([a-z][\w-]*)", re.sub("(?s)```.*?```", "", text))) == set(entries)
    sections = re.findall("(?m)^# (.*)$", re.sub("(?s)```.*?```", "", text))
    assert {"Summary", "Statement of need", "State of the field", "References"} <= set(sections)


def test_each_reference_is_whole():
    text = (PAPER.parent / "paper.bib").read_text()
    assert text.count("{") == text.count("}")
    for entry in re.split(r"(?m)^@", text)[1:]:
        fields = set(re.findall(r"(?m)^  (\w+)\s+= \{", entry))
        assert {"author", "title", "year"} <= fields and fields & {"doi", "url"}, entry


def test_paper_names_commands_that_exist():
    text = PAPER.read_text()
    assert set(re.findall(r"`make ([\w-]+)", text)) <= targets()
    programs = [*re.findall(r"(?m)^python3 (.*)$", text), *re.findall(r"`python (\S+)`", text)]
    assert len(programs) == 2
    assert all((ROOT / word).exists() for program in programs for word in program.split())


def test_releasing_names_commands_that_exist():
    text = (ROOT / "docs" / "releasing.md").read_text()
    made = [word for line in re.findall(r"`make ([\w -]+)`", text) for word in line.split()]
    assert {"pins", "test-matrix", "dist-test", "audit"} <= set(made) <= targets()


def test_the_root_holds_what_tools_and_hosts_look_for_there():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split("/")[0] for line in listed.splitlines()} == AT_THE_ROOT
