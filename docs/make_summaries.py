"""Write the numbers of summaries from the results and commands that they come from: `make summaries`."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SUMMARY = "benchmarks/results/README.md"
# Commands whose output a page shows below them. The memory is said, so that it is the same where there is a GPU.
SHOWN = {
    "docs/scaling.md": "vitrail info --train vit-l16 --gpus 8 --batch 4096 --gpu-memory 80",
    "docs/larger.md": "vitrail info --train vit-h14 --num-classes 18291 --gpus 64 --batch 4096 --gpu-memory 80",
}
_LIBRARIES = {"huggingface": "Hugging Face"}


@dataclass(frozen=True)
class Piece:
    """Words that a page has once, with `{}` for each number between them."""

    page: str
    words: str
    numbers: tuple[str, ...]

    def written(self, text: str) -> str:
        """The page with these numbers."""
        pattern = re.escape(self.words).replace(re.escape("{}"), "[^|\n]+?")
        text, count = re.subn(pattern, lambda _: self.words.format(*self.numbers), text)
        if count != 1:
            raise SystemExit(
                f"{self.page} has {count} times, not once: {self.words}. Say it anew in {Path(__file__).name}."
            )
        return text


def pages() -> dict[str, str]:
    """Every page that has numbers of results, as it should be."""
    found: dict[str, str] = {}
    for piece in pieces():
        text = found.get(piece.page) or (ROOT / piece.page).read_text(encoding="utf-8")
        found[piece.page] = piece.written(text)
    return found


def shown(page: str, text: str) -> str:
    """The page with what its command prints today."""
    from vitrail.cli import main

    command = SHOWN[page]
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(io.StringIO()) as printed:
        main(command.split()[1:])
    block = "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())
    before, _, after = text.partition(f"$ {command}\n```\n\n```\n")
    return f"{before}$ {command}\n```\n\n```\n{block}\n{after[after.index('```') :]}"


def pieces() -> Iterator[Piece]:
    """All of them, by page."""
    yield from _networks()
    yield from _data_and_training()
    yield from _answers()
    yield from _without_labels()
    yield from _elsewhere()


def cell(file: str, row: str, column: str, section: str = "") -> str:
    """What stands in a table of a result, in the first row that begins so and has that column."""
    header: list[str] = []
    text = _text(file)
    for line in text[text.index(section) :].splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")] if line.startswith("|") else []
        header = header if cells and header else cells
        if line.startswith(f"| {row} |") and column in header:
            return cells[header.index(column)]
    raise SystemExit(f"{file}.md has no row {row!r} with a column {column!r}.")


def said(file: str, pattern: str) -> tuple[str, ...]:
    """The numbers in a sentence of a result."""
    found = re.search(pattern, _text(file))
    if found is None:
        raise SystemExit(f"{file}.md no longer says {pattern!r}.")
    return found.groups()


def _text(file: str) -> str:
    return (RESULTS / f"{file}.md").read_text(encoding="utf-8").replace("**", "")


def _networks() -> Iterator[Piece]:
    """Our speed over that of the fastest peer."""
    for machine, network, *files in (
        ("H200, bf16, batch 256, compiled", "vit-s16", "h200-vit-s16-compiled", "h200-vit-s16-compiled"),
        ("H200, bf16, batch 256, compiled", "vit-b16", "h200-vit-b16-compiled", "h200-vit-b16-compiled"),
        ("H200, bf16, batch 256, compiled", "vit-l16", "h200-vit-l16-compiled", "h200-vit-l16-compiled"),
        ("H200, bf16, batch 256, eager", "vit-b16", "h200-vit-b16-eager", "h200-vit-b16-eager"),
        ("H200, bf16, batch 256, eager", "vit-s16", "h200-vit-s16-eager", "h200-vit-s16-eager"),
        ("H200, bf16, batch 128, eager", "vit-l16", "h200-vit-l16-eager", "h200-vit-l16-eager"),
        ("CPU, 2 threads, eager, batch 4", "vit-s16", "cpu-vit-s16-eager", "cpu-vit-s16-eager"),
        ("CPU, 2 threads, compiled, batch 4", "vit-s16", "cpu-vit-s16-compiled", ""),
        ("CPU, 2 threads, compiled, batch 2", "vit-s16", "", "cpu-vit-s16-training-compiled"),
        ("CPU, 2 threads, eager, batch 2", "vit-b16", "cpu-vit-b16-eager", ""),
        ("CPU, 2 threads, eager, batch 1", "vit-b16", "cpu-vit-b16-l16-eager-batch1", "cpu-vit-b16-l16-eager-batch1"),
        ("CPU, 2 threads, eager, batch 1", "vit-l16", "cpu-vit-b16-l16-eager-batch1", "cpu-vit-l16-training-eager"),
    ):
        mode = "compiled" if "compiled" in machine else "eager"
        batch = machine[machine.index("batch") :].partition(",")[0]
        timed = {step: file for step, file in zip(("inference", "training"), files, strict=True) if file}
        numbers = []
        for step, file in timed.items():
            row = f"{network}, {step}, {mode}, {batch}"
            peer = cell(file, row, "fastest peer")
            numbers += [cell(file, row, "ours / theirs").split()[0], _LIBRARIES.get(peer, peer)]
        ratios = "; ".join(["{} ({})"] * len(timed))
        yield Piece(SUMMARY, f"| {machine} | {network} | {'; '.join(timed)} | {ratios} |", tuple(numbers))


def _data_and_training() -> Iterator[Piece]:
    cpu, gpu = "cpu-loading", "h200-loading"
    fast, packed = "vitrail, decoder fast", "vitrail, packed"
    for file, row, words in (
        (cpu, fast, "| from JPEGs, fast decoder | {} images/s | {} x timm's, {} x torchvision's tensors |"),
        (gpu, fast, "| from JPEGs, decoded on the GPU | {} images/s | {} x timm's, {} x torchvision's tensors |"),
    ):
        columns = ("images/s", "of timm's", "of the best peer's")
        yield Piece(SUMMARY, words, tuple(cell(file, row, column) for column in columns))
    for file, machine in ((cpu, "2 cores, 2 workers"), (gpu, "H200, 16 workers")):
        numbers = cell(file, packed, "images/s"), cell(file, packed, "of timm's")
        yield Piece(SUMMARY, f"| {machine} | from a packed copy | {{}} images/s | {{}} x timm's |", numbers)
    waits = [(cell(gpu, row, "data wait per step"), float(cell(gpu, row, "share")[:-1])) for row in (fast, "timm")]
    yield Piece(
        SUMMARY,
        "| wait for data per step, JPEGs on the GPU | {} ({} %) | timm {} ({} %) |",
        (waits[0][0], f"{waits[0][1]:.1f}", waits[1][0], f"{waits[1][1]:.0f}"),
    )
    row = "crop, flip, RandAugment (2, 15), erasing, mixup/CutMix"
    numbers = cell("h200-resident", row, "images/s alone"), cell("h200-resident", row, "longer")[:-1]
    yield Piece(SUMMARY, "CutMix | {} images/s | a step of a 5.4 M ViT takes {} % longer |", numbers)
    row = "faults told, of those that can be known"
    yield Piece(SUMMARY, "([data-check](data-check.md)) | {}, no false alarm |", (cell("data-check", row, "planted"),))

    for file, whose in (("h200-loop-overhead", "our ViT-B/16"), ("cpu-loop-overhead", "timm's ViT-S/16")):
        ratio = cell(file, "our loop", "ours / bare")
        yield Piece(SUMMARY, f"our loop around {whose}, beside a bare step | {{}} of its rate |", (ratio,))
    plain, conv, minutes = _cifar10()
    words = "| CIFAR-10 from scratch, {} minutes: plain ViT; behind convolutions | {}; {} |"
    yield Piece(SUMMARY, words, (minutes, plain, conv))
    mixed = "`--lr 0.03 --augment.mixup 0.8"
    (row,) = re.findall(rf"\| ({mixed}.*?`) \|", _text("h200-transfer"))
    numbers = tuple(cell("h200-transfer", row, column) for column in ("minutes", "test accuracy"))
    yield Piece(SUMMARY, "| CIFAR-10 at 224 px from ViT-Ti/16, {} minutes | {} |", numbers)
    pets, cifar10 = (cell("h200-transfer", "ViT-Ti/16, AugReg", name) for name in ("oxford-pets", "cifar10"))
    (scratch,) = said("h200-transfer", r"--schedule.warmup-steps 50` \| ([\d.]+) ± ")
    words = "to Pets (from scratch {} %); CIFAR-10 in 1,000 steps | {} %; {} % |"
    yield Piece(SUMMARY, words, (scratch, pets, cifar10))
    (vtab,) = said("h200-transfer", r"3 seeds: ([\d.]+ ± [\d.]+ %) of")
    yield Piece(SUMMARY, "| Pets as VTAB-1k has it, from ViT-Ti/16 | {} |", (vtab,))
    mnist = cell("mnist", "our recipe `vit-mnist`", "test accuracy").split(" ±")[0]
    yield Piece(SUMMARY, "| MNIST beside the study notes' runs | {} |", (mnist,))
    ratios = re.findall(r"GB \| ([\d.]+) \| (?:yes|no)", _text("h200-training-memory"))
    yield Piece(SUMMARY, "the peak of B/16, L/16 and H/14 | {} to {} of it |", (min(ratios), max(ratios)))
    ratios = tuple(
        f"{float(cell('h200-wrappers', f'vit-b16 | 256 | {mode} | {wrapper}', 'against plain')):.3f}"
        for mode in ("eager", "compiled")
        for wrapper in ("DDP", "FSDP2")
    )
    yield Piece(SUMMARY, "around ViT-B/16, eager; compiled | {}, {}; {}, {} of a plain step |", ratios)


def _answers() -> Iterator[Piece]:
    """What looking inside and answering costs."""
    rows = ("rollout, all 12 layers", "rollout, last 4 layers")
    kept = [cell("cpu-inspection", row, "peak memory", section="## 1024 px") for row in rows]
    (whole,) = said("cpu-inspection", r"1024 px \(4,097 tokens; the attention of all layers would be (.*?)\)")
    words = "whose attention would be {} | {} for all layers, {} for the last 4 |"
    yield Piece(SUMMARY, words, (whole, *kept))
    for network in ("vit-s16", "vit-b16"):
        sections = [f"## {network}, batch {batch}" for batch in (1, 8)]
        speeds = [cell("cpu-inference", "vitrail, OpenVINO", "images/s", section=section) for section in sections]
        ratios = [
            said("cpu-inference", rf"{section}\n\nOur best, vitrail, OpenVINO, has ([\d.]+) .* of timm, OpenVINO")[0]
            for section in sections
        ]
        words = f"{network}, batch 1; 8: our OpenVINO | {{}}; {{}} images/s | {{}}; {{}} x the fastest other"
        yield Piece(SUMMARY, words, (*speeds, *ratios))
    started = (
        "vitrail, exported to ONNX",
        "vitrail, a model folder in torch",
        "a script with timm",
        "a script with Hugging Face",
    )
    seconds = tuple(cell("cpu-cold-start", row, "seconds") for row in started)
    yield Piece(SUMMARY, "exported file; model folder | {} s; {} s | timm {} s, Hugging Face {} s |", seconds)
    (goodput,) = said("cpu-serving", r"Goodput at 4x is (\d+)% of that at 1x")
    (well,) = said("cpu-serving", r"again from ([\d.]+) s after its end on")
    numbers = f"{int(goodput) / 100:.2f}", cell("cpu-serving", "4x", "p99 of refusals"), well
    words = "at 4 x its capacity | {} x the goodput at 1 x | refusals within {} (p99), well again after {} s |"
    yield Piece(SUMMARY, words, numbers)
    answered, again, lost = said(
        "cpu-serving", r"connection.*: ([\d,]+) answered, (\d+) told to come again, (\d+) lost"
    )
    asked = f"{int(answered.replace(',', '')) + int(again) + int(lost):,}"
    yield Piece(SUMMARY, "model swaps under 32 clients | {} of {} lost |", (lost, asked))
    files, other, crashes = said("fuzz-images", r"([\d,]+) files: .* (\d+) ended in anything else, (\d+) crashes")
    words = "(fuzz-images.md)) | {} broken images into the path of an upload, 10 minutes | {} crashes, {} tracebacks |"
    yield Piece(SUMMARY, words, (files, crashes, other))
    found = re.findall(r"\| (\d+ of \d+) \| ([\d.e+-]*) ?\|", _text("cpu-same-answers"))
    furthest = f"{max(float(number) for _, number in found if number):.1e}".replace("e-0", "e-")
    words = "top-1 of 160 photos on every backend and export | {}, logits within {} |"
    yield Piece(SUMMARY, words, ("equal" if {same for same, _ in found} == {"160 of 160"} else "not equal", furthest))


def _without_labels() -> Iterator[Piece]:
    """Self-supervision and self-training."""
    file, mean = "h200-self-supervision", "mean ± standard deviation"
    for first, seconds, *rows in (
        ("The masked autoencoder, ", "67", "masked autoencoder"),
        (
            "Masked patches, 47 s",
            "47",
            *(f"masked patches, {target}" for target in ("mean colour", "4x4 colours", "pixels")),
        ),
    ):
        scratch = cell(file, "nothing: from scratch", mean, section=first)
        for row in rows:
            gain = f"{float(cell(file, row, 'above scratch', section=first)):+.1f}"
            words = f"| {row} | {seconds} s | {{}} | {{}} | {{}} |"
            yield Piece("docs/self-supervision.md", words, (cell(file, row, mean, section=first), scratch, gain))
    taught = "autoencoder, seeds 0, 1, 2"
    alone = "labels alone, as long as all of it (145 s, one seed)"
    page = "docs/self-training.md"
    for row, shown_as in (
        ("teacher", "teacher, labels alone, 67 s (in float32)"),
        ("student, round 1", "student, round 1"),
        ("student, round 2", "student, round 2"),
    ):
        # Both columns of means have one name.
        both = said(file, rf"\| {row} \| [^|]* \| ([^|]*?) \| [^|]* \| ([^|]*?) \|")
        yield Piece(page, f"| {shown_as} | {{}} | {{}} |", both)
    numbers = cell(file, alone, taught), cell(file, alone, "scratch, seeds 0, 1, 2")
    yield Piece(page, "| labels alone, as long as all three together (one seed) | {} | {} |", numbers)
    (student, scratch) = said(file, r"\(([\d.]+) % against ([\d.]+) % of one run\)")
    yield Piece("docs/self-supervision.md", "the autoencoder's arm has {} %,", (both[0],))
    yield Piece("docs/self-supervision.md", "and one run from scratch in the same time {} %.", (numbers[1],))
    words = "both together have {} % right, and a run on the labels alone {} % in the same time"
    yield Piece("README.md", words, (student, scratch))


def _elsewhere() -> Iterator[Piece]:
    """The README, and what is computed from a measured speed."""
    plain, conv, minutes = _cifar10()
    yield Piece("README.md", "in {} minutes on an H200, a plain ViT reaches {} on CIFAR-10", (minutes, plain))
    yield Piece("README.md", "  convolutions {} ([how](benchmarks/results/h200-cifar10.md))", (conv,))
    words = "takes a plain ViT to {} of CIFAR-10's test images in {} minutes on an H200, `conv-vit-cifar10` to {}, from"
    yield Piece("docs/training.md", words, (plain, minutes, conv))
    pillow, fast = (
        f"{round(int(cell('h200-loading', f'vitrail, decoder {kind}', 'images/s').replace(',', '')), -2):,}"
        for kind in ("pillow", "fast")
    )
    words = "{} images/s with Pillow and {} with `--decoder fast`, on the GPU"
    yield Piece("docs/scaling.md", words, (pillow, fast))

    row = "vit-l16, training, compiled, batch 256"
    speed = float(cell("h200-vit-l16-compiled", row, "our images/s").replace(",", ""))
    tera = speed * 3 * 123.11 / 1000  # GFLOPs of an image, three times for forward and backward
    share = round(100 * tera / 989)
    yield Piece("docs/scaling.md", "One H200 trains ViT-L/16 at {} images/s, compiled", (f"{speed:,.0f}",))
    words = "so that is {} TFLOP/s, {} % of the 989 in NVIDIA's data sheet"
    yield Piece("docs/scaling.md", words, (f"{tera:.0f}", f"{share}"))
    # ViT-H/14 at the same share: an image is 1,004 GFLOPs, the whole run 4,258 exaFLOPs.
    huge = share / 100 * 989e12 / 1004e9
    days = 4258e18 / (share / 100 * 989e12) / 86400
    yield Piece("docs/larger.md", "ViT-L/16 trained at {} % of an H200's data sheet", (f"{share}",))
    words = "| {} %, as ViT-L/16 | {} | {} | {} |"
    yield Piece("docs/larger.md", words, (f"{share}", f"{huge:.0f}", f"{days:.0f}", f"{days / 64:.1f}"))
    yield Piece("docs/larger.md", "Beside {} ms of computing", (f"{64000 / huge:.0f}",))
    yield Piece("docs/larger.md", "(64 images at {}/s)", (f"{huge:.0f}",))


def _cifar10() -> tuple[str, str, str]:
    """Test accuracies of a plain ViT and of one behind convolutions, and their minutes."""
    rows = re.findall(r"\| (`(?:conv-)?vit-cifar10`: [^|]*?) \|", _text("h200-cifar10"))
    plain, conv = (cell("h200-cifar10", row, "test accuracy") for row in rows)
    return plain, conv, cell("h200-cifar10", rows[0], "minutes")


if __name__ == "__main__":
    written = pages()
    for page in SHOWN:
        written[page] = shown(page, written[page])
    for page, text in written.items():
        (ROOT / page).write_text(text, encoding="utf-8")
