"""The command line as a user meets it: one clear line and the right exit status."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow.parquet as pq
import pytest

import epida_ray.cli.list
import epida_ray.cli.status
from epida_ray.classify.cnn import CNN
from epida_ray.cli.main import COMMANDS, command_name
from epida_ray.data.storage import Storage
from epida_ray.runs.manifest import Manifest

LIMIT = 240


def epida(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "epida_ray.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a CSV with everything that CSV allows in a field."""
    folder = tmp_path_factory.mktemp("cli")
    CNN(("ask", "tell"), vectors="hashed").save(folder / "model")
    with (folder / "in.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "note"])
        for i in range(40):
            writer.writerow([f'He said, "please send\nnumber {i}, thanks"', "ask" if i % 2 else "tell", "=1+1"])
    (folder / "evil").mkdir()
    config = {"classifier": "subprocess:Popen", "keeps": False, "arguments": {"args": ["false"]}}
    (folder / "evil" / "config.json").write_text(json.dumps(config | {"labels": ["ask", "tell"], "temperature": 1}))
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB that is full after a few files."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small file system here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["augment", "nowhere.csv", "-o", "{out}"], "no such file or directory: nowhere.csv"),
        (["augment", "{in}"], "--output DIR is missing"),
        (["augment", "-o", "{out}"], "INPUT is missing"),
        (["augment", "{in}", "-o", "{out}", "-m", "0"], "-m: Input should be greater"),
        (["export", "{out}"], "see `epida export --help`"),
        (["evaluate", "{parent}", "{in}"], "did you mean {model}?"),
        (["augment", "{in}", "-o", "{out}", "--classifier", "{parent}"], "did you mean {model}?"),
        (
            ["augment", "{in}", "-o", "{out}", "--text-column", "body"],
            "no column 'body'; it has 'text', 'label', 'note'",
        ),
        (
            ["augment", "{in}", "-o", "{out}", "--combine", "divide"],
            "'divide' is not one of 'add', 'multiply', 'weighted'",
        ),
        (["augment", "{in}", "-o", "{out}", "--generator", "magic"], "there is no generator 'magic'"),
        (["augment", "{in}", "-o", "{out}", "--generator", "none"], "--generator none makes no rewrites"),
        (["augment", "{in}", "-o", "{out}", "--protect", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["augment", "{in}", "-o", "{out}", "--config", "nowhere.yaml"], "--config nowhere.yaml: "),
        (["preview", "a text", "-m", "0"], "Invalid value for '-m'"),
        (["reproduce", "ablation", "-o", "{out}"], "--data-dir D is missing"),
        (
            ["augment", "{in}", "-o", "{out}", "--generator", "back-translation", "--language", "de"],
            "--language de: back-translation takes no language",
        ),
        (["preview", "Guten Tag", "--generator", "synonym", "--language", "de"], "no synonyms for the language de"),
        (["augment", "{in}", "-o", "{out}", "-m", "none"], "Invalid value for '-m'"),
        (["augment", "{in}", "-o", "{out}", "--bogus"], "No such option: --bogus"),
        (
            ["augment", "{in}", "-o", "{out}", "--address", "127.0.0.1:1", "--classifier", "{model}"],
            "no Ray at --address",
        ),
        (["train", "{in}", "-o", "{out}", "--rounds", "0"], "--rounds: Input should be greater than or equal to 1"),
        (["evaluate", "{in}", "{in}"], "holds no saved model"),
        (["list", "wonders"], "'wonders' is not one of 'generators', 'classifiers', 'selectors'"),
        (["status", "{model}"], "is not a run directory: it has no manifest.json"),
        (["status", "{model}/nowhere"], "it does not exist, or is empty"),
        (["reproduce", "nosuch"], "there is no experiment 'nosuch'; choose one of"),
        (
            ["reproduce", "loss", "--method", "L", "--setting", "hub:x:60", "-o", "{out}"],
            "loss has no method 'L'; choose one of: none; random EDA; L_g; L = L_o + L_g",
        ),
        (["preview", "a text", "--generator-arg", "x=["], "the value of 'x=[' cannot be read as YAML"),
        (["preview", "a text", "--generator-arg", "x=2020-13-45"], "month must be in 1..12"),
        (["preview", "a text", "--generator", ":Foo"], "generator ':Foo' cannot be imported"),
        (["evaluate", "{evil}", "{in}"], "add --trust-code subprocess:Popen"),
        (["augment", "{in}", "-o", "{out}", "--classifier", "{evil}"], "add --trust-code subprocess:Popen"),
        (["augment", "{in}", "-o", "o\udcff"], "--output: 'o\\udcff' is not valid UTF-8"),
        (["check", "{in}", "-o", "o\udcff"], "o\\udcff' is not valid UTF-8"),
        (["status", "o\udcff"], "o\\udcff' is not valid UTF-8"),
        (
            [
                "train",
                "{in}",
                "-o",
                "{out}",
                "--classifier",
                "linear",
                "--labels",
                "ask,tell,moan",
                "--teacher",
                "{model}",
            ],
            "has the classes ask, tell, not those of TRAIN: ask, tell, moan; it lacks moan",
        ),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_2(
    folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    places = {"{in}": str(folder / "in.csv"), "{out}": str(tmp_path / "out"), "{model}": str(folder / "model")}
    places |= {"{evil}": str(folder / "evil"), "{parent}": str(folder)}
    result = epida(*(places.get(a, a) for a in arguments))
    assert result.returncode == 2, result.stderr
    assert message.replace("{model}", places["{model}"]) in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("epida: ")


def test_augment_evaluate_and_status_from_a_csv(folder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    done = epida(
        "augment", str(folder / "in.csv"), "-o", out, "--classifier", str(folder / "model"), "--address", "local"
    )
    assert done.returncode == 0, done.stderr
    assert "40 rows read" in done.stderr and done.stdout == ""
    rows = pq.read_table(f"{out}/augmented").to_pylist()
    assert {r["source_text"] for r in rows} == {f'He said, "please send\nnumber {i}, thanks"' for i in range(40)}
    again = epida("augment", str(folder / "in.csv"), "-o", out, "--classifier", str(folder / "model"))
    assert again.returncode == 0 and "finished already" in again.stderr
    scored = epida("evaluate", f"{out}/model", str(folder / "in.csv"), "--json")
    result = json.loads(scored.stdout)
    assert {"accuracy", "macro_f1", "per_class"} <= result.keys() and set(result["per_class"]) == {"ask", "tell"}
    state = epida("status", out)
    assert state.returncode == 0 and "augment: finished" in state.stdout


def test_rows_that_cannot_be_scored_are_said_and_have_a_budget(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "test.csv"
    file.write_text("text,label\n" + "\n".join(f"please send number {i},ask" for i in range(5)) + "\nhello,Ask\n")
    scored = epida("evaluate", str(folder / "model"), str(file), "--json")
    reason = "the model does not know the label 'Ask'"
    assert (
        json.loads(scored.stdout)["reasons"] == {reason: 1} and f"1 of 6 rows are left out: {reason}" in scored.stderr
    )
    strict = epida("evaluate", str(folder / "model"), str(file), "--max-rejected", "0.1")
    assert strict.returncode == 1 and "1 of 6 rows cannot be scored" in strict.stderr and strict.stdout == ""


def test_a_config_file_may_name_the_input_and_a_refused_request_says_why(folder: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("body,label\n" + "\n".join(f"please send number {i},ask" for i in range(5)) + "\n")
    config = tmp_path / "run.yaml"
    config.write_text(f"input: {one}\ntext-column: body\noutput: {tmp_path / 'out'}\n")
    refused = epida("augment", "--config", str(config))
    assert refused.returncode == 2 and "one class only" in refused.stderr
    assert "refused" in (shown := epida("status", str(tmp_path / "out")).stdout) and "one class only" in shown


def test_a_full_disk_is_said_in_one_line_and_what_is_done_is_kept(
    folder: Path, tmp_path: Path, small_disk: Path
) -> None:
    big = tmp_path / "big.csv"
    lines = [
        f"a rather long text number {i} about nothing in particular {i * 7919},{'ask' if i % 2 else 'tell'}"
        for i in range(6000)
    ]
    big.write_text("text,label\n" + "\n".join(lines))
    model = tmp_path / "model"
    CNN(("ask", "tell"), vectors="hashed", channels=8).save(model)
    command = ("augment", str(big), "-o", str(small_disk / "run"), "--classifier", str(model), "--address", "local")
    result = epida(*command)
    assert result.returncode == 1, result.stderr
    assert "No space left on device" in result.stderr and "run the same command again to resume" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_directory_that_cannot_be_written_is_refused(folder: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = epida(
        "augment", str(folder / "in.csv"), "-o", str(small_disk / "run"), "--classifier", str(folder / "model")
    )
    assert result.returncode == 2 and "Read-only file system" in result.stderr and "Traceback" not in result.stderr


def test_what_comes_from_data_is_shown_as_it_is_but_for_control_characters(folder: Path, tmp_path: Path) -> None:
    shown = epida("preview", "see [/b] here is my parcel [enter] :tada:", "--generator", "aeda")
    assert shown.returncode == 0 and "[/b]" in shown.stdout and "[enter]" in shown.stdout and ":tada:" in shown.stdout
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *([f"text {i}", "a\x1b[2J\nb"] for i in range(9))])
    failed = epida("augment", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out"))
    assert failed.returncode == 2 and "one class only (a�[2J b)" in failed.stderr and "\x1b" not in failed.stderr
    model = tmp_path / "model"
    CNN(("[/b]\x1b[2J", "[ask]"), vectors="hashed").save(model)
    rows = [[f"text {i}", ("[/b]\x1b[2J", "[ask]")[i % 2]] for i in range(9)]
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    scored = epida("evaluate", str(model), str(tmp_path / "in.csv"))
    assert scored.returncode == 0, scored.stderr
    assert "[/b]�[2J" in scored.stdout and "[ask]" in scored.stdout and "\x1b" not in scored.stdout


def test_a_missing_extra_is_listed_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("epida_ray.core.registry.find_spec", lambda name: None)
    epida_ray.cli.list.command(epida_ray.cli.list.Kind.classifiers)
    assert "epida-ray[minilm]" in "".join(c for c in capsys.readouterr().out if not c.isspace() and c != "│")


@pytest.mark.parametrize(
    ("rounds_done", "said"), [(None, "rounds: 0 of 8 done"), (1, "rounds: 0 of 8 done"), (9, "rounds: 8 of 8 done")]
)
def test_status_of_training_counts_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rounds_done: int | None, said: str
) -> None:
    manifest = {"format": 2, "kind": "train", "status": "running", "started": "then\x1b", "request": {"rounds": 8}}
    if rounds_done:
        manifest["rounds_done"] = rounds_done
    if rounds_done == 9:
        done = {"shards": 9, "rows": 40, "candidates": 360, "kept": 120, "rejected": 0, "short": 0}
        manifest |= {"status": "finished", "shards": 8, "done": done, "seconds": {}, "reasons": {"a \x1bb": 1}}
        manifest["best"] = {"round": 3, "macro_f1": 0.9, "accuracy": 0.9, "loss": 0.1}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    epida_ray.cli.status.command(str(tmp_path))
    out = capsys.readouterr().out
    assert out.splitlines()[2] == said and "shards" not in out and "\x1b" not in out


def test_a_run_whose_process_is_gone_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = {"format": 2, "kind": "train", "status": "running", "started": "then", "request": {"rounds": 8}}
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    for pid, host, said in (
        (gone.pid, platform.node(), "train: stopped before it was finished; run the same command again to resume it\n"),
        (gone.pid, "another", "train: running\n"),
        (os.getpid(), platform.node(), "train: running\n"),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"process": {"host": host, "pid": pid}}))
        epida_ray.cli.status.command(str(tmp_path))
        assert capsys.readouterr().out.startswith(said)


def test_options_of_the_command_line_override_the_file(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("generator-arg: [in_file=1]\ntrain: nowhere.csv\noutput: nowhere\n")
    here = ("--generator-arg", "given_here=1", "-o", str(tmp_path / "out"))
    result = epida("train", str(folder / "in.csv"), "--config", str(config), *here)
    assert result.returncode == 2 and "given_here" in result.stderr and "in_file" not in result.stderr
    result = epida("train", "--config", str(config))
    assert result.returncode == 2 and "in_file" in result.stderr
    config.write_text("train: a\noutput: b\nclasifier: cnn\n")
    result = epida("train", "--config", str(config))
    assert result.returncode == 2 and "clasifier: no such option; did you mean --classifier?" in result.stderr


def test_predict_and_version(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,text\n1,is it so\n2,\n")
    done = epida("predict", str(folder / "model"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv"))
    assert done.returncode == 0 and "2 rows written to" in done.stdout and "1 without a prediction" in done.stdout
    assert (tmp_path / "out.csv").read_text().startswith("id,text,predicted,confidence\n1,is it so,")
    assert epida("--version").stdout.startswith("epida 0.")


def test_help_names_what_is_needed() -> None:
    printed = epida("train", "--help").stdout
    headings = [line for line in printed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "Arguments:",
        "Input:",
        "Method:",
        "Training:",
        "Unlabelled texts and teachers:",
        "Output:",
        "Resources and limits:",
        "Options:",
    ]
    shown = " ".join(printed.split())
    assert "[OPTIONS] [TRAIN]" in shown and "Required, here or in --config" in shown and "$RAY_ADDRESS if set" in shown
    assert "--one-time" in shown and "--generator-arg KEY=VALUE" in shown and "-o, --output DIR" in shown


def test_the_program_s_help_fits_80_columns_and_cuts_nothing() -> None:
    shown = epida("--help", COLUMNS="80").stdout
    assert "..." not in shown.replace("[ARGS]...", "") and max(map(len, shown.splitlines())) <= 80
    for module in (module for modules in COMMANDS.values() for module in modules):
        (first_line, *_) = module.command.__doc__.splitlines()
        assert re.search(rf"^  {command_name(module)} +{re.escape(first_line)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("module", [m for modules in COMMANDS.values() for m in modules], ids=lambda m: m.__name__)
def test_every_help_ends_with_an_example_of_valid_options(module: Any) -> None:
    printed = epida(command_name(module), "--help", COLUMNS="80").stdout
    assert (
        printed.rstrip().endswith(f"Example:\n{indent(module.EXAMPLE, '    ')}")
        and max(map(len, printed.splitlines())) <= 80
    )
    assert all(f"{word} " in printed for word in shlex.split(module.EXAMPLE) if word.startswith("--"))


@pytest.mark.parametrize("arguments", [["--help"], ["status", "{run}"]])
def test_help_and_status_need_neither_ray_nor_torch(tmp_path: Path, arguments: list[str]) -> None:
    Manifest(kind="augment", status="running", request={}).write(Storage(str(tmp_path)))
    code = (
        f"import sys; sys.argv = {['epida', *(a.format(run=tmp_path) for a in arguments)]}\n"
        "from epida_ray.cli import main\n"
        "try: main()\n"
        "except SystemExit: print({'ray', 'torch', 'transformers', 'sklearn'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert shown.stdout.splitlines()[-1] == "set()", shown.stderr


def test_preview_and_list() -> None:
    shown = epida("preview", "Please send the blue kettle back")
    assert shown.returncode == 0 and shown.stdout.count("│") >= 9
    slips = epida("preview", "привет мир", "--generator", "spelling", "--language", "ru", "-m", "20")
    assert slips.returncode == 0 and "neighbour" in slips.stdout
    listed = epida("list", "selectors")
    assert listed.returncode == 0 and "cem-agreement" in listed.stdout
    generators = epida("list", "generators", COLUMNS="200").stdout
    assert "yes, with --generator-arg model=…" in generators
