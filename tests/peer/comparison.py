"""Logits of a model held against recorded ones: what the scripts for single libraries share."""

import json
import pathlib
import sys

import torch
import transformers


class Failure(Exception):
    """An adapter that is not as it should be."""


def record_of(folder, base):
    """What logits.json says, if it is there, and the path of the base model."""
    path = folder / "logits.json"
    wanted = json.loads(path.read_text()) if path.is_file() else None
    if not wanted and not base:
        raise Failure("there is no logits.json, and no --base either")
    return wanted, base or str((folder / wanted["base"]).resolve())


def compare(model, sequences):
    """The largest difference, over the largest logit when that is above 1."""
    worst = 0.0
    model.eval()
    for sequence in sequences:
        wanted = torch.tensor(sequence["logits"], dtype=torch.float32)
        with torch.no_grad():
            found = model(input_ids=torch.tensor([sequence["ids"]])).logits[0]
        found = found[len(found) - len(wanted) :]
        scale = max(1.0, wanted.abs().max().item())
        worst = max(worst, (found - wanted).abs().max().item() / scale)
    return worst


def verdict(kind, model, wanted, tolerance):
    """One line for an adapter that agrees."""
    if not wanted:
        return f"{kind}: every key has its place; no logits.json to compare with"
    worst = compare(model, wanted["sequences"])
    if not worst <= tolerance:
        raise Failure(f"logits differ by {worst:.1e}, {tolerance:.0e} allowed")
    return f"{kind}: logits within {worst:.1e}"


def run(parser, check):
    """Checks each folder by `check(folder, args)`; the exit status says whether all agree."""
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--base")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for folder in args.folders:
        try:
            print(f"{folder}: {check(folder, args)}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"{folder}: FAILED: {failure}", flush=True)
    print(f"{len(args.folders) - failed} of {len(args.folders)} adapters agree")
    sys.exit(1 if failed else 0)
