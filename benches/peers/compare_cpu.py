#!/usr/bin/env python3
"""Lily and llama.cpp in turn on the same machine, the true shape with fewer experts.

  compare_cpu.py [--rows decode@0,prefill512] [--rounds 5] [--experts 32] [--out rows.jsonl]

Rows: decode@DEPTH (32 tokens after a context of DEPTH) and prefillN. llama.cpp must have been built
and its checkpoint made by run_llama_cpp.sh; Lily is target/release/lily and makes its own random
weights, MLX 4-bit groups of 64, in memory. Each round starts both programs afresh, so memory layout
and page placement vary as they do for a user.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("WORK", pathlib.Path(tempfile.gettempdir()) / "peers"))
DECODE_TOKENS = 32


def parse(row):
    decode = re.fullmatch(r"decode@(\d+)", row)
    prefill = re.fullmatch(r"prefill(\d+)", row)
    if not (decode or prefill):
        sys.exit(f"error: row {row!r} is neither decode@DEPTH nor prefillN")
    return ("decode", int(decode[1])) if decode else ("prefill", int(prefill[1]))


def llama(binary, model, threads, kind, n):
    what = ["-p", "0", "-n", str(DECODE_TOKENS), "-d", str(n)] if kind == "decode" else ["-p", str(n), "-n", "0"]
    command = [str(binary), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "jsonl", *what]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return rows[0]["samples_ts"][0]


def lily(binary, experts, threads, kind, n):
    what = (["--prompt", "0", "--gen", str(DECODE_TOKENS), "--ctx-depth", str(n)] if kind == "decode"
            else ["--prompt", str(n), "--gen", "0"])
    command = [str(binary), "bench", "--shape", "35b", "--experts", str(experts), "--random", "--threads",
               str(threads), "--reps", "1", "--json", *what]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(run.stdout)["rows"] if row["kind"] == kind]
    return rows[0]["tokens_per_s_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="decode@0,prefill512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lily", type=pathlib.Path, default=ROOT / "target/release/lily")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    bench = WORK / "llama-build/bin/llama-bench"
    model = WORK / f"ckpt/shape-e{args.experts}-q4_k_m.gguf"
    for path, remedy in [(bench, "run_llama_cpp.sh q4_k_m"), (model, "run_llama_cpp.sh q4_k_m"),
                         (args.lily, "cargo build --release")]:
        if not path.exists():
            sys.exit(f"error: {path} is missing; make it with {remedy}")

    for row in args.rows.split(","):
        kind, n = parse(row)
        ours, theirs = [], []
        for _ in range(args.rounds):
            theirs.append(llama(bench, model, args.threads, kind, n))
            ours.append(lily(args.lily, args.experts, args.threads, kind, n))
        result = {"row": row, "threads": args.threads, "experts": args.experts, "load": os.getloadavg()[2]}
        for name, samples in [("lily", ours), ("llama.cpp", theirs)]:
            result[name] = {"min": round(min(samples), 2), "median": round(statistics.median(samples), 2),
                            "max": round(max(samples), 2), "samples": [round(x, 2) for x in samples]}
        result["ratio_of_medians"] = round(statistics.median(ours) / statistics.median(theirs), 2)
        result["ratio_to_their_max"] = round(statistics.median(ours) / max(theirs), 2)
        print(json.dumps(result), flush=True)
        if args.out:
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
