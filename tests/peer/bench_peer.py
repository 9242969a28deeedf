#!/usr/bin/env python3
"""Trains LoRA jobs with transformers and peft in separate processes, and measures all of them together.

    bench_peer.py --model MODEL --mode padded|packed --processes N [--threads T] [--repetitions R] [--mask-half] [--json]
    bench_peer.py --model MODEL --check

Each process trains one job: LoRA of rank 8 on all seven linear layers, f32, AdamW, no checkpointing, batches of four
sequences of 93, 81, 60, 77 and of 64, 43, 277, 66 random tokens in turn. Every token counts in the loss; with
--mask-half the first half of each sequence does not. padded: batches are padded to their longest sequence; packed: one
row without padding, whose position ids restart, so that transformers masks sequences from each other.

Loading and a first step are outside the measurement. Only real tokens count. The last line is one JSON object:
tokens_per_second, cpu_ms_per_token (user and system, all threads), peak_pss_bytes (all processes at one moment).
--check compares the losses of the two modes: they must be the same loss.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

# A thread that spins while it waits takes the core from the process that works. Read when OpenMP starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

BATCHES = [[93, 81, 60, 77], [64, 43, 277, 66]]
TOKENS = sum(map(sum, BATCHES))
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NOT_TRAINED = -100


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=["padded", "packed"], default="padded")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repetitions", type=int, default=2, help="each is one step on each of the two batches")
    parser.add_argument("--mask-half", action="store_true", help="the first half of a sequence does not count")
    parser.add_argument("--json", action="store_true", help="print nothing but the result")
    parser.add_argument("--check", action="store_true", help="compare the losses of both modes and end")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def sequences(lengths, vocabulary, generator, mask_half):
    """(ids, labels) of random sequences; the first half of the labels is taken out if so wished."""
    import torch

    made = []
    for length in lengths:
        ids = torch.randint(3, vocabulary, (length,), generator=generator)
        labels = ids.clone()
        if mask_half:
            labels[: length // 2] = NOT_TRAINED
        made.append((ids, labels))
    return made


def padded(batch):
    """The arguments of a forward pass over a padded batch."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = pad_sequence([ids for ids, _ in batch], batch_first=True)
    labels = pad_sequence([labels for _, labels in batch], batch_first=True, padding_value=NOT_TRAINED)
    mask = pad_sequence([torch.ones_like(ids) for ids, _ in batch], batch_first=True)
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def packed(batch):
    """The arguments of a forward pass over one row without padding."""
    import torch

    labels = []
    for _, own in batch:
        own = own.clone()
        own[0] = NOT_TRAINED  # the token before it is of another sequence
        labels.append(own)
    return {
        "input_ids": torch.cat([ids for ids, _ in batch])[None],
        "labels": torch.cat(labels)[None],
        "position_ids": torch.cat([torch.arange(len(ids)) for ids, _ in batch])[None],
    }


def prepare(args, seed):
    """The model with a fresh adapter, and its two batches."""
    import torch
    from peft import LoraConfig, get_peft_model

    from backbone import folder_of, load

    torch.set_num_threads(args.threads)
    torch.manual_seed(seed)
    model = load(folder_of(args.model))
    vocabulary = model.config.vocab_size
    config = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    model.train()
    generator = torch.Generator().manual_seed(seed)
    batches = [sequences(lengths, vocabulary, generator, args.mask_half) for lengths in BATCHES]
    return model, batches


def work(args):
    """One process: makes ready, waits for a line on its input, trains, tells what it took."""
    import resource

    import torch

    model, batches = prepare(args, args.worker)
    arrange = padded if args.mode == "padded" else packed
    inputs = [arrange(batch) for batch in batches]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4)

    def step(given):
        optimizer.zero_grad()
        loss = model(**given).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    step(inputs[1])  # the larger one, so that memory is at its height too

    def cpu():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    print("ready", flush=True)
    sys.stdin.readline()
    before, loss = cpu(), 0.0
    for _ in range(args.repetitions):
        for given in inputs:
            loss = step(given)
    print(json.dumps({"cpu": cpu() - before, "end": time.monotonic(), "loss": loss}), flush=True)
    sys.stdin.readline()  # its memory counts until all are done


def pss(pids):
    """Proportional set size of processes together, in bytes."""
    total = 0
    for pid in pids:
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


class Memory(threading.Thread):
    """Looks at the memory of processes again and again, and keeps the largest sum."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.peak, self.done = pids, 0, threading.Event()

    def run(self):
        while True:
            self.peak = max(self.peak, pss(self.pids))
            if self.done.wait(0.2):
                return


def worker(args, number):
    """Starts one process."""
    command = [sys.executable, os.path.abspath(__file__), "--worker", str(number), "--model", args.model]
    command += ["--mode", args.mode, "--threads", str(args.threads), "--repetitions", str(args.repetitions)]
    if args.mask_half:
        command.append("--mask-half")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process):
    """The next line of a process."""
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with {process.wait()} before it was done")
    return line


def tell(process):
    """Lets a process go on."""
    process.stdin.write("\n")
    process.stdin.flush()


def measure(args):
    """Starts all processes, lets them go at once, and adds up."""
    from backbone import folder_of

    args.model = str(folder_of(args.model))  # once, not in every process
    processes = [worker(args, number) for number in range(args.processes)]
    try:
        for process in processes:
            answer(process)
        memory = Memory([process.pid for process in processes])
        memory.start()
        start = time.monotonic()
        for process in processes:
            tell(process)
        found = [json.loads(answer(process)) for process in processes]
        memory.done.set()
        memory.join()
        for process in processes:
            tell(process)
            process.wait()
    finally:
        for process in processes:
            process.kill()
    tokens = TOKENS * args.repetitions * args.processes
    wall = max(one["end"] for one in found) - start
    return {
        "tokens_per_second": tokens / wall,
        "cpu_ms_per_token": 1000 * sum(one["cpu"] for one in found) / tokens,
        "peak_pss_bytes": memory.peak,
        "mode": args.mode,
        "processes": args.processes,
        "threads": args.threads,
        "mask_half": args.mask_half,
        "tokens": tokens,
        "seconds": wall,
        "loss": found[0]["loss"],
    }


def check(args):
    """Both modes must compute the same loss."""
    import torch

    model, batches = prepare(args, 0)
    model.eval()
    for batch in batches:
        with torch.no_grad():
            one, other = model(**padded(batch)).loss.item(), model(**packed(batch)).loss.item()
        print(f"padded {one:.7f} packed {other:.7f}")
        if abs(one - other) > 1e-5 * abs(one):
            raise SystemExit("the two modes compute different losses: packed sequences see each other")


def main():
    args = arguments()
    if args.worker is not None:
        return work(args)
    if args.check:
        return check(args)
    result = measure(args)
    if not args.json:
        rate, cpu, memory = (result[key] for key in ("tokens_per_second", "cpu_ms_per_token", "peak_pss_bytes"))
        print(f"{args.processes} x {args.mode}, {args.threads} threads each, mask_half={args.mask_half}")
        print(f"{rate:.1f} tokens/s, {cpu:.2f} CPU ms/token, {memory / 1e9:.2f} GB PSS")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
