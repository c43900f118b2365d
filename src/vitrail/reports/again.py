"""How to do a run again, and what to do next."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from vitrail.config import ModelConfig, VitConfig, to_json
from vitrail.data.check.words import counted, number, text
from vitrail.reports.numbers import duration
from vitrail.reports.story import Story
from vitrail.weights.parts import parts_of
from vitrail.weights.save import LAYOUTS

_FILES = {"timm": "model.safetensors", "google": "model.npz", "torchvision": "model.safetensors"}


def facts(story: Story) -> str:
    """The command, what it depends on, and every setting folded away."""
    record, train = story.record, story.record.config.train
    counts = ", ".join(f"{text(name)} {number(count)}" for name, count in record.counts.items())
    versions = ", ".join(f"{text(name)} {text(str(version))}" for name, version in record.versions.items() if version)
    seconds, command, seeds = story.done.get("seconds") if story.done else None, record.command, [train.seed]
    in_all = ""
    if whole := story.summary:
        seconds, command, seeds = whole.seconds, whole.command, [final.seed for final in whole.seeds]
        in_all = f"; {counted(whole.runs, 'run')} in all"
    rows = [
        ("seed" if len(seeds) == 1 else "seeds", ", ".join(map(str, seeds))),
        ("steps", f"{number(story.step)} of {number(train.batch_size)} images each{in_all}"),
        ("images", counts),
        ("training data", f'<span class="path">sha256 {text(record.digest)}</span>'),
        ("versions", versions),
        ("device", text(record.device)),
        *([("time", duration(seconds))] if seconds is not None else []),
    ]
    table = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    settings = "".join(
        f'<tr><td class="path">{text(name)}</td><td class="path">{text(value)}</td></tr>'
        for name, value in flat(to_json(record.config))
    )
    return (
        f'<pre class="command">{text(command)}</pre><table class="facts">{table}</table>'
        f'<details><summary>Every setting</summary><table class="facts">{settings}</table></details>'
    )


def flat(values: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested settings, with their full names."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from flat(value, f"{where}.{name}" if where else name)
    else:
        yield where, "none" if values is None else json.dumps(values, ensure_ascii=False)


def next_commands(story: Story) -> list[tuple[str, str]]:
    """What to type, and what it gives; only what makes sense for this run."""
    data = story.record.config.data
    run = shlex.quote(str(story.path if story.summary is None else story.summary.path))
    root = f" --root {shlex.quote(data.root)}" if data.root else ""
    check = (
        f"vitrail data check {shlex.quote(data.data)}{root} --page check.html",
        "copies across splits, wrong labels and damaged files, with pictures",
    )
    if story.has_diverged:
        return [check]
    anew = (f"vitrail report {run}", "this page once more, with what there is by then")
    if story.is_live:
        return [anew, check]
    if story.done is None:
        return [(story.resume, "goes on exactly where the run stopped"), anew, check]
    has_attention = isinstance(story.record.config.model, VitConfig)
    looks = "where it looks and what it has learnt" if has_attention else "the filters that it has learnt"
    inspect = (f"vitrail inspect {run} IMAGES", f"{looks}, as the figures of the paper")
    if story.record.config.masking is not None:
        return [
            (f"vitrail finetune {run} --data FOLDER", "teaches it your classes"),
            (f"vitrail fewshot {run} --data FOLDER", "how much a few images of each class teach, on its features"),
            inspect,
            (f"vitrail report {run} OTHER_RUN", "two runs beside each other: settings and curves"),
            (f"vitrail info {run}", "what the network is and costs, layer by layer"),
        ]
    return [
        (f"vitrail predict {run} IMAGES", "what it says about images"),
        (f"vitrail serve {run}", "the same in a browser" + ", with where it looks" * has_attention),
        (f"vitrail evaluate {run} --data FOLDER", "how good it is on other images"),
        (f"vitrail export {run} --to onnx", "a file for other runtimes, compared with torch"),
        (f"vitrail report {run} OTHER_RUN", "two runs beside each other: settings, curves, the images they differ on"),
        inspect,
        (f"vitrail info {run}", "what the network is and costs, layer by layer"),
        *(
            [(f"vitrail convert {run} {target}", "the weights for other libraries, compared bit by bit")]
            if (target := _conversion(story.record.config.model))
            else []
        ),
        (f"vitrail finetune {run} --data FOLDER", "the same network on images of your own"),
        (f"vitrail push {run} OWNER/NAME", "the model to the Hugging Face hub, private unless you say --public"),
        check,
    ]


def _conversion(model: ModelConfig) -> str | None:
    """A file of another library that can hold this network."""
    for layout, file in _FILES.items():
        holds = LAYOUTS[layout].holds
        if holds is not None and holds.issuperset(parts_of(model)):
            return f"{file} --layout {layout}"
    return None
